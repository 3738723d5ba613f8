//! From spec to container, in tables.

use super::*;
use crate::oci::info::EngineInfo;
use crate::oci::{Flavour, render_docker, render_podman};
use handler_types::image::{ImageMount, ImageUse};
use handler_types::launch::TRANSPARENT_RESOLV;
use handler_types::network::Transparent;
use handler_types::sandbox::{FileSpec, MountSpec, SandboxSpec};
use serde_json::json;

fn plan(change: impl FnOnce(&mut SandboxSpec)) -> InstancePlan {
    let mut spec: SandboxSpec = serde_json::from_value(json!({
        "backend": "podman", "workdir": "/work/p", "home": "/home/agent", "scope": "/work/p",
        "network": {"mode": "filtered", "allow": [], "enforcement": "enforce"},
        "image": {"reference": "debian:13", "id": "sha256:aa"},
    }))
    .expect("a spec");
    change(&mut spec);
    InstancePlan {
        id: "sb0102030405060708".parse().expect("an id"),
        owner: "h1".to_owned(),
        spec,
        dir: "/state/s".into(),
        runtime_dir: "/run/s".into(),
        egress_dir: Some("/run/e".into()),
        ca_pem: None,
    }
}

fn facts() -> Facts {
    Facts {
        identity: Identity { uid: 1000, gid: 100 },
        keep_id: true,
        guest_program: "/data/guest".into(),
        of_image: ImageEnv::default(),
        runtime: None,
        limits: Limits::default(),
        etc: Etc {
            passwd: "root:x:0:0:root:/root:/bin/sh\nagent:x:7:7::/:/bin/sh\npostgres:x:70:70::/:/bin/sh\nbroken\n".to_owned(),
            group: "root:x:0:\n".to_owned(),
        },
    }
}

fn built(change: impl FnOnce(&mut SandboxSpec)) -> Built {
    let plan = plan(change);
    build(&plan, &HostPaths::of(&plan), &facts()).expect("plans")
}

fn file<'a>(built: &'a Built, target: &str) -> Option<&'a str> {
    built
        .files
        .iter()
        .find(|file| file.target == target)
        .map(|file| file.content.as_str())
}

#[test]
fn the_guest_is_the_only_program_and_is_told_of_the_filter_only_when_there_is_one() {
    let strict = built(|_| {}).container;
    assert_eq!(
        strict.argv.first().map(String::as_str),
        Some("/run/handler/init")
    );
    assert!(
        strict
            .argv
            .ends_with(&["--egress-port".to_owned(), EGRESS_PORT.to_string()])
    );
    assert_eq!(strict.env["HTTPS_PROXY"], strict.env["http_proxy"]);
    assert!(!strict.open);
    let open = built(|spec| spec.network = NetworkPolicy::Open).container;
    assert!(open.open && !open.env.contains_key("HTTP_PROXY"));
    assert!(
        open.argv
            .iter()
            .all(|argument| argument != "--egress-socket")
    );
    assert!(open.binds.iter().all(|bind| bind.target != EGRESS_DIR));
}

#[test]
fn files_and_folders_go_where_they_are_seen_and_stay_writable_around() {
    let made = |target: &str, writable| FileSpec {
        target: target.to_owned(),
        content: target.to_owned(),
        mode: 0o600,
        writable,
    };
    let built = built(|spec| {
        spec.writable_paths = vec!["/opt/a".to_owned(), "/opt/b".to_owned()];
        spec.mounts = vec![MountSpec {
            source: "/work/q".to_owned(),
            target: "/home/agent/q".to_owned(),
            read_only: true,
        }];
        spec.image_mounts = vec![ImageMount {
            image: ImageUse {
                reference: "x".to_owned(),
                id: "sha256:bb".to_owned(),
            },
            target: "/opt/b/image".to_owned(),
        }];
        spec.files = vec![
            made("/etc/x", false),
            made("/home/agent/y", true),
            made("/home/agent/d/z", false),
            made("/work/p/w", true),
        ];
    });
    let tmpfs: Vec<&str> = built
        .container
        .tmpfs
        .iter()
        .map(|place| place.target.as_str())
        .collect();
    assert_eq!(tmpfs, ["/tmp", "/opt/a"]);
    let home = PathBuf::from("/state/s/home");
    let seeds = [
        Seed::Folder {
            root: "/state/s/folders/1".into(),
        },
        Seed::FolderPlace {
            root: home.clone(),
            below: "q".into(),
        },
        Seed::FolderPlace {
            root: "/state/s/folders/1".into(),
            below: "image".into(),
        },
        Seed::File {
            root: home.clone(),
            below: "y".into(),
            content: "/home/agent/y".to_owned(),
            mode: 0o600,
        },
        Seed::FilePlace {
            root: home,
            below: "d/z".into(),
        },
        Seed::File {
            root: "/work/p".into(),
            below: "w".into(),
            content: "/work/p/w".to_owned(),
            mode: 0o600,
        },
    ];
    assert_eq!(built.seeds, seeds);
    let aside = built
        .container
        .binds
        .iter()
        .find(|bind| bind.target == "/etc/x")
        .expect("mounted");
    assert!(aside.read_only && aside.source.starts_with("/state/s/files/"));
    let depth = |bind: &Bind| bind.target.split('/').count();
    assert!(
        built.container.binds.is_sorted_by_key(depth),
        "the outer ones come first"
    );
    assert_eq!(
        built.container.labels["handler.image-mount.sha256:bb"],
        "/opt/b/image"
    );
}

#[test]
fn the_images_users_stay_beside_ours_and_names_are_the_engines_with_a_route() {
    let filtered = built(|_| {});
    let passwd = file(&filtered, "/etc/passwd").expect("passwd");
    assert!(
        passwd.starts_with("agent:x:1000:100:agent:/home/agent:/bin/sh\n"),
        "{passwd}"
    );
    assert!(
        passwd.contains("postgres:x:70")
            && !passwd.contains("agent:x:7:")
            && !passwd.contains("broken")
    );
    assert!(file(&filtered, "/etc/resolv.conf").is_some());
    let open = built(|spec| spec.network = NetworkPolicy::Open);
    assert!(file(&open, "/etc/resolv.conf").is_none() && file(&open, "/etc/machine-id").is_some());
}

#[test]
fn levels_of_confinement_are_what_podman_is_told() {
    let table = [
        (
            Confinement::Strict,
            json!(["all"]),
            json!(true),
            json!(null),
            json!(null),
        ),
        (
            Confinement::Nested,
            json!(null),
            json!(null),
            json!(["/proc/*"]),
            json!(null),
        ),
        (
            Confinement::Privileged,
            json!(null),
            json!(null),
            json!(null),
            json!(true),
        ),
    ];
    for (level, drop, no_new, unmask, privileged) in table {
        let built = built(|spec| spec.confinement = level);
        let body = render_podman::body(&built.container);
        assert_eq!(body["cap_drop"], drop, "{level:?}");
        assert_eq!(body["no_new_privileges"], no_new, "{level:?}");
        assert_eq!(body["unmask"], unmask, "{level:?}");
        assert_eq!(body["privileged"], privileged, "{level:?}");
        assert_eq!(body["read_only_filesystem"], json!(true));
        assert_eq!(body["netns"], json!({"nsmode": "none"}));
        assert_eq!(body["userns"], json!({"nsmode": "keep-id"}));
        assert_eq!(body["user"], "1000:100");
        assert_eq!(
            file(&built, "/etc/subuid").is_some(),
            level != Confinement::Strict
        );
    }
}

#[test]
fn levels_of_confinement_are_what_docker_is_told() {
    for level in [
        Confinement::Strict,
        Confinement::Nested,
        Confinement::Privileged,
    ] {
        let built = built(|spec| spec.confinement = level);
        let host = render_docker::body(&built.container, Some("{}"))
            .host_config
            .expect("host");
        assert_eq!(host.readonly_rootfs, Some(true));
        assert_eq!(host.network_mode.as_deref(), Some("none"));
        assert_eq!(host.privileged, Some(level == Confinement::Privileged));
        assert_eq!(host.cap_drop.is_some(), level == Confinement::Strict);
        let security = host.security_opt.expect("options");
        assert_eq!(
            security.contains(&"no-new-privileges:true".to_owned()),
            level == Confinement::Strict
        );
        assert_eq!(
            security.contains(&"seccomp={}".to_owned()),
            level == Confinement::Nested
        );
        assert_eq!(host.masked_paths.is_some(), level == Confinement::Nested);
    }
}

#[test]
fn rights_over_the_network_are_lent_only_when_transparent_mode_is_required() {
    let plain = built(|_| {});
    assert!(file(&plain, "/etc/resolv.conf").is_some_and(|text| text.contains("127.0.0.1")));
    let body = render_podman::body(&plain.container);
    assert_eq!(
        (&body["cap_add"], &body["devices"]),
        (&json!([]), &json!([]))
    );
    let host = render_docker::body(&plain.container, None).host_config;
    let host = host.expect("host");
    assert_eq!((host.cap_add, host.devices), (None, Some(Vec::new())));

    let on = built(|spec| spec.transparent = Transparent::Required);
    assert_eq!(file(&on, "/etc/resolv.conf"), Some(TRANSPARENT_RESOLV));
    let user = ["--transparent".to_owned(), "1000:100".to_owned()];
    assert!(on.container.argv.ends_with(&user));
    let body = render_podman::body(&on.container);
    assert_eq!(body["user"], "1000:100");
    assert_eq!(body["cap_drop"], json!(["all"]));
    assert_eq!(body["cap_add"], json!(["CAP_NET_ADMIN", "CAP_SETPCAP"]));
    assert_eq!(body["devices"], json!([{"path": "/dev/net/tun"}]));
    assert_eq!(body["no_new_privileges"], true);
    assert_eq!(body["netns"], json!({"nsmode": "none"}));
    let body = render_docker::body(&on.container, None);
    // Nobody else gets capabilities there; the guest becomes the user of its argument.
    assert_eq!(body.user.as_deref(), Some("0:0"));
    let host = body.host_config.expect("host");
    assert_eq!(host.cap_drop, Some(vec!["ALL".to_owned()]));
    let lent = ["CAP_NET_ADMIN", "CAP_SETPCAP", "CAP_SETUID", "CAP_SETGID"];
    assert_eq!(host.cap_add, Some(lent.map(str::to_owned).to_vec()));
    assert_eq!(
        host.security_opt,
        Some(vec!["no-new-privileges:true".to_owned()])
    );
    assert_eq!(host.network_mode.as_deref(), Some("none"));
    let devices = host.devices.expect("devices");
    let paths: Vec<_> = devices
        .iter()
        .map(|one| one.path_in_container.as_deref())
        .collect();
    assert_eq!(paths, [Some("/dev/net/tun")]);
}

#[test]
fn limits_include_swap_and_a_changed_description_is_another_container() {
    let plan = plan(|_| {});
    let facts = Facts {
        limits: Limits {
            memory: Some(64 << 20),
            nano_cpus: Some(1_500_000_000),
            pids: Some(9),
        },
        ..facts()
    };
    let limited = build(&plan, &HostPaths::of(&plan), &facts)
        .expect("plans")
        .container;
    let limits = render_podman::body(&limited)["resource_limits"].clone();
    assert_eq!(
        limits,
        json!({"memory": {"limit": 64 << 20, "swap": 64 << 20},
        "cpu": {"quota": 150_000, "period": 100_000}, "pids": {"limit": 9}})
    );
    let digest = |container: &ContainerPlan| container.labels[labels::CONFIG].clone();
    let plain = built(|_| {}).container;
    assert_ne!(digest(&limited), digest(&plain));
    assert_eq!(digest(&built(|_| {}).container), digest(&plain));
    let labelled = built(|spec| {
        spec.labels
            .insert("handler.owner".to_owned(), "forged".to_owned());
        spec.labels.insert("mine".to_owned(), "1".to_owned());
    });
    assert_eq!(labelled.container.labels["handler.owner"], "h1");
    assert_eq!(labelled.container.labels["mine"], "1");
}

#[test]
fn appended_folders_follow_the_images_own_path() {
    let plan = plan(|spec| spec.path_append = vec!["/t/bin".to_owned()]);
    let facts = Facts {
        of_image: ImageEnv::of(&[
            "PATH=/image/bin".to_owned(),
            "JAVA_TOOL_OPTIONS=-Xmx64m".to_owned(),
        ]),
        ..facts()
    };
    let env = build(&plan, &HostPaths::of(&plan), &facts)
        .expect("plans")
        .container
        .env;
    assert_eq!(env["PATH"], "/image/bin:/t/bin");
    let java = &env["JAVA_TOOL_OPTIONS"];
    assert!(
        java.starts_with("-Xmx64m -Djavax.net.ssl.trustStore="),
        "{java}"
    );
    assert!(!built(|_| {}).container.env.contains_key("PATH"));
}

type Change = fn(&mut SandboxSpec);

#[test]
fn what_cannot_be_is_refused() {
    let table: [(&str, Change); 12] = [
        ("transparent, and no way out", |spec| {
            spec.transparent = Transparent::Required;
            spec.network = NetworkPolicy::None;
        }),
        ("transparent, and the engine's own network", |spec| {
            spec.transparent = Transparent::Required;
            spec.network = NetworkPolicy::Open;
        }),
        ("transparent, and rights inside", |spec| {
            spec.transparent = Transparent::Required;
            spec.confinement = Confinement::Nested;
        }),
        ("image", |spec| spec.image = None),
        ("backend", |spec| spec.backend = "docker".to_owned()),
        ("colon", |spec| spec.scope = Some("/work/a:b".to_owned())),
        ("comma", |spec| {
            spec.writable_paths = vec!["/a,b".to_owned()];
        }),
        ("own place", |spec| {
            spec.writable_paths = vec!["/run/handler/x".to_owned()];
        }),
        ("twice", |spec| {
            spec.writable_paths = vec!["/x".to_owned(), "/x".to_owned()];
        }),
        ("path", |spec| {
            spec.path_append = vec!["/x".to_owned()];
            spec.env.insert("PATH".to_owned(), "/y".to_owned());
        }),
        ("display", |spec| {
            spec.display = Some("/proc/nonexistent".to_owned());
        }),
        ("display variable", |spec| {
            spec.display = Some("/dev/null".to_owned());
            spec.env.insert("DISPLAY".to_owned(), ":0".to_owned());
        }),
    ];
    check(&plan(|_| {}).spec, "podman", None).expect("as it is");
    for (what, change) in table {
        assert!(check(&plan(change).spec, "podman", None).is_err(), "{what}");
    }
}

#[test]
fn what_this_engine_cannot_do_is_refused() {
    let engine = EngineInfo {
        flavour: Flavour::Podman,
        version: "4.3.1".to_owned(),
        rootless: true,
        cgroup_v1: true,
        memory_limit: false,
        cpu_limit: false,
        pids_limit: false,
        image_mounts: false,
        default_runtime: "runc".to_owned(),
        runtimes: ["runc", "runsc"]
            .map(|name| (name.to_owned(), Ok(())))
            .into(),
    };
    let table: [(&str, Change); 4] = [
        ("transparent mode in another kernel", |spec| {
            spec.transparent = Transparent::Required;
            spec.runtime = Some("runsc".to_owned());
        }),
        ("runtime", |spec| spec.runtime = Some("crun".to_owned())),
        ("limit", |spec| {
            spec.resources.memory_mib = Some(64);
            spec.strict_limits = true;
        }),
        ("image mount", |spec| {
            spec.image_mounts = vec![ImageMount {
                image: ImageUse {
                    reference: "x".to_owned(),
                    id: "sha256:bb".to_owned(),
                },
                target: "/x".to_owned(),
            }];
        }),
    ];
    for (what, change) in table {
        let spec = plan(change).spec;
        check(&spec, "podman", None).expect("nothing is known of the engine");
        let refused = check(&spec, "podman", Some(&engine));
        assert!(
            matches!(refused, Err(DriverError::Unenforceable(_))),
            "{what}: {refused:?}"
        );
    }
    let lax = plan(|spec| spec.resources.memory_mib = Some(64)).spec;
    check(&lax, "podman", Some(&engine)).expect("is told as a warning");
    assert_eq!(limits_missing(&lax, &engine).len(), 1);
}
