//! Tables over the plan: what is refused, and what a whole plan looks like.

use super::*;
use crate::native::system::NO_PROXY;
use handler_types::SandboxId;
use handler_types::network::NetworkPolicy;
use handler_types::sandbox::{FileSpec, MountSpec};

fn spec() -> SandboxSpec {
    let text = r#"{"backend":"native","workdir":"/home/agent","home":"/home/agent","network":{"mode":"none"}}"#;
    serde_json::from_str(text).expect("a spec")
}

fn facts() -> HostFacts {
    HostFacts {
        uid: 1000,
        gid: 1001,
        shell: "/bin/bash".to_owned(),
        open_files: 1024,
        private: vec![PathBuf::from("/home/me/.local/state/handler")],
    }
}

fn instance(spec: SandboxSpec) -> InstancePlan {
    InstancePlan {
        id: SandboxId::from_random([7; 8]),
        owner: "o1".to_owned(),
        spec,
        dir: "/home/me/.local/state/handler/sandboxes/x".into(),
        runtime_dir: "/run/user/1000/handler/x".into(),
        egress_dir: None,
        ca_pem: None,
    }
}

fn planned(plan: &InstancePlan) -> Result<LaunchPlan, DriverError> {
    launch_plan(
        plan,
        &InstancePaths::of(plan),
        &facts(),
        &Taken::default(),
        &[PathBuf::from("/cg/a")],
    )
}

fn mount(source: &str, target: &str) -> MountSpec {
    MountSpec {
        source: source.to_owned(),
        target: target.to_owned(),
        read_only: true,
    }
}

#[test]
fn mounts_that_would_break_the_sandbox_or_show_state_are_refused() {
    let refused = [
        ("/srv/x", "/"),
        ("/srv/x", "/proc"),
        ("/srv/x", "/proc/self"),
        ("/srv/x", "/dev/shm"),
        ("/srv/x", "/sys/x"),
        ("/srv/x", "/run/handler"),
        ("/srv/x", "/run/handler/egress"),
        ("/srv/x", "/usr"),
        ("/srv/x", "/etc"),
        ("/srv/x", "/tmp"),
        ("/srv/x", "/home/agent"),
        ("/srv/x", "/a/../b"),
        ("/srv/x", "/a/./b/.."),
        ("/srv/x", "relative"),
        ("/srv/x", "/a\0b"),
        ("/srv/x", "/a/"),
        ("/srv/../x", "/a"),
        ("srv", "/a"),
        ("", "/a"),
        ("/home/me/.local/state/handler/other", "/a"),
        ("/home/me", "/a"),
        ("/", "/a"),
        ("/run/user/1000", "/a"),
    ];
    for (source, target) in refused {
        let mut wanted = spec();
        wanted.mounts = vec![mount(source, target)];
        let result = planned(&instance(wanted));
        assert!(
            matches!(result, Err(DriverError::Invalid(_))),
            "{source} on {target}"
        );
    }
}

#[test]
fn a_project_folder_may_be_anywhere_and_named_anything() {
    for scope in [
        "/root/p",
        "/tmp/p q",
        "/srv/a,b",
        "/home/x/ü",
        "/var/lib/p",
        "/opt/p",
        "/home",
    ] {
        let mut wanted = spec();
        wanted.scope = Some(scope.to_owned());
        if scope == "/home" {
            wanted.home = "/agent".to_owned();
        }
        let mut facts = facts();
        facts.private.clear();
        let mut plan = instance(wanted);
        plan.dir = "/x/y".into();
        let paths = InstancePaths::of(&plan);
        let made = launch_plan(&plan, &paths, &facts, &Taken::default(), &[]).expect("a plan");
        let shown = made
            .mounts
            .iter()
            .find(|mount| mount.target == scope)
            .expect("mounted");
        assert_eq!((shown.source.as_str(), shown.read_only), (scope, false));
    }
}

#[test]
fn two_mounts_on_one_place_are_refused() {
    let mut wanted = spec();
    wanted.scope = Some("/srv/x".to_owned());
    wanted.mounts = vec![mount("/srv/y", "/srv/x")];
    assert!(matches!(
        planned(&instance(wanted)),
        Err(DriverError::Invalid(_))
    ));
}

#[test]
fn mounts_are_ordered_by_depth() {
    let mut wanted = spec();
    wanted.mounts = vec![mount("/a", "/data/deep/er"), mount("/b", "/data")];
    let made = planned(&instance(wanted)).expect("a plan");
    let targets: Vec<&str> = made
        .mounts
        .iter()
        .map(|mount| mount.target.as_str())
        .collect();
    assert_eq!(
        targets,
        ["/data", "/data/deep/er", CA_BUNDLE, JAVA_TRUST_STORE]
    );
}

#[test]
fn only_a_sandbox_with_a_filter_is_pointed_to_it() {
    let mut plan = instance(spec());
    plan.spec.network = NetworkPolicy::default();
    let without = planned(&plan).expect("a plan");
    assert!(!without.env.contains_key("HTTPS_PROXY"));
    plan.egress_dir = Some("/run/e".into());
    let with = planned(&plan).expect("a plan");
    for name in ["HTTP_PROXY", "https_proxy"] {
        assert_eq!(with.env[name], "http://127.0.0.1:3128");
    }
    assert_eq!(with.env["no_proxy"], NO_PROXY);
    assert_eq!(with.env["NODE_EXTRA_CA_CERTS"], CA_BUNDLE);
    let java = |env: &std::collections::BTreeMap<String, String>| env["JAVA_TOOL_OPTIONS"].clone();
    assert!(java(&with.env).contains("-Dhttps.proxyPort=3128"));
    assert!(!java(&without.env).contains("proxyPort"));
    assert_eq!(with.egress_dir.as_deref(), Some("/run/e"));
}

#[test]
fn the_specs_environment_wins_and_odd_names_are_refused() {
    let mut wanted = spec();
    wanted.env.insert("TERM".to_owned(), "dumb".to_owned());
    let heap = "-Xmx64m".to_owned();
    wanted.env.insert("JAVA_TOOL_OPTIONS".to_owned(), heap);
    let made = planned(&instance(wanted.clone())).expect("a plan");
    assert_eq!(made.env["TERM"], "dumb");
    assert_eq!(made.env["HANDLER_SANDBOX"], "sb0707070707070707");
    for (name, value) in [("", "x"), ("A=B", "x"), ("A", "x\0")] {
        let mut odd = wanted.clone();
        odd.env.insert(name.to_owned(), value.to_owned());
        assert!(planned(&instance(odd)).is_err(), "{name:?}");
    }
}

#[test]
fn a_whole_plan_shows_nothing_of_people_hosts_or_keys() {
    let mut wanted = spec();
    wanted.files = vec![FileSpec {
        target: "/home/agent/.x".to_owned(),
        content: "x".to_owned(),
        mode: 0o4755,
        writable: true,
    }];
    let made = planned(&instance(wanted)).expect("a plan");
    let secret = [
        "shadow",
        "sudoers",
        "ssh/",
        "hosts",
        "resolv",
        "machine-id",
        "cron",
        "krb5",
    ];
    for path in &made.system {
        assert!(!secret.iter().any(|name| path.contains(name)), "{path}");
        assert!(
            path != "/etc" && path != "/" && !path.starts_with("/run") && !path.starts_with("/var")
        );
    }
    assert_eq!((made.uid, made.gid), (1000, 1001));
    assert_eq!(
        made.home_source,
        "/home/me/.local/state/handler/sandboxes/x/home"
    );
    assert_eq!(made.socket, "/run/user/1000/handler/x/guest.sock");
    assert_eq!(made.cgroups, ["/cg/a"]);
    assert_eq!(made.files.last().expect("a file").mode, 0o755);
    let passwd = made
        .files
        .iter()
        .find(|file| file.target == "/etc/passwd")
        .expect("passwd");
    assert!(passwd.content.starts_with("agent:x:1000:1001:"));
}

#[test]
fn an_owner_that_is_no_plain_name_is_refused() {
    for owner in ["", ".", "a/b", "../x", "a b", "a\0", &"x".repeat(65)] {
        let mut plan = instance(spec());
        plan.owner = owner.to_owned();
        assert!(
            matches!(planned(&plan), Err(DriverError::Invalid(_))),
            "{owner:?}"
        );
    }
}
