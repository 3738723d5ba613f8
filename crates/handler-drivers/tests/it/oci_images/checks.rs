//! What every engine's store must do.

use super::engines::Engine;
use handler_drivers::oci::Flavour;
use handler_engine::images::{BuildPlan, ImageError, ImageStore as _};
use handler_types::image::ImageConfig;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// A static shell, present on every machine that can run the other tests.
const BUSYBOX: [&str; 3] = ["/bin/busybox", "/usr/bin/busybox", "/sbin/busybox"];

pub(crate) async fn all(engine: &Engine) {
    let Some(busybox) = BUSYBOX.iter().find(|p| Path::new(p).exists()) else {
        eprintln!("SKIP images: no busybox here");
        return;
    };
    let bench = Bench {
        engine,
        busybox: PathBuf::from(busybox),
        name: format!("localhost/handler-test-{}", handler_base::random::hex(6)),
    };
    let before = engine.images.list().await.unwrap().len();
    let id = bench.builds_with_arguments_labels_and_a_clean_log().await;
    bench
        .lends_certificates_and_proxies_only_while_building(&id)
        .await;
    bench.cancelled_builds_leave_nothing().await;
    bench.builds_of_a_dead_daemon_are_swept_away().await;
    bench.failed_builds_say_why_and_leave_nothing().await;
    bench.names_move_and_used_images_stay(&id).await;
    bench.imports_archives_and_nothing_else().await;
    bench.pulls_say_why_they_fail().await;
    assert_eq!(
        engine.images.list().await.unwrap().len(),
        before,
        "images are left"
    );
}

struct Bench<'a> {
    engine: &'a Engine,
    busybox: PathBuf,
    name: String,
}

/// A recipe whose steps run in the static shell; `{step}` lines follow.
fn recipe(steps: &str) -> String {
    format!("FROM scratch\nCOPY busybox /bin/busybox\n{steps}\n")
}

fn run(script: &str) -> String {
    format!(
        "RUN {}",
        serde_json::json!(["/bin/busybox", "sh", "-c", script])
    )
}

impl Bench<'_> {
    fn plan(&self, recipe: &str) -> (tempfile::TempDir, BuildPlan) {
        let folder = tempfile::tempdir_in(self.engine.folder.path()).unwrap();
        let sources = folder.path().join("sources");
        std::fs::create_dir(&sources).unwrap();
        std::fs::copy(&self.busybox, sources.join("busybox")).unwrap();
        std::fs::write(sources.join("Containerfile"), recipe).unwrap();
        let context = folder.path().join("context.tar");
        let tar = Command::new("tar")
            .arg("-C")
            .arg(&sources)
            .arg("-cf")
            .arg(&context)
            .args(["Containerfile", "busybox"])
            .status();
        assert!(tar.unwrap().success());
        let plan = BuildPlan {
            context,
            containerfile: "Containerfile".into(),
            no_cache: true,
            ..BuildPlan::default()
        };
        (folder, plan)
    }

    async fn build(&self, plan: &BuildPlan) -> (Result<String, ImageError>, Vec<String>) {
        let (lines, mut said) = mpsc::channel::<String>(16);
        let collect = async {
            let mut all = Vec::new();
            while let Some(line) = said.recv().await {
                all.push(line);
            }
            all
        };
        let cancel = CancellationToken::new();
        let build = async {
            let result = self.engine.images.build(plan, &lines, &cancel).await;
            drop(lines);
            result
        };
        tokio::join!(build, collect)
    }

    async fn builds_with_arguments_labels_and_a_clean_log(&self) -> String {
        let steps = format!(
            "ARG WORD\nENV SAID=yes\nWORKDIR /w\n{}",
            run("/bin/busybox printf 'word=\\033[31m%s\\033[0m!\\n' \"$WORD\"")
        );
        let (_folder, mut plan) = self.plan(&recipe(&steps));
        plan.args = BTreeMap::from([("WORD".into(), "two words".into())]);
        plan.labels = BTreeMap::from([("a.b".into(), "c d".into())]);
        plan.tags = vec![format!("{}:1", self.name)];
        let (id, log) = self.build(&plan).await;
        let id = id.unwrap_or_else(|error| panic!("{error}\n{}", log.join("\n")));
        assert!(log.iter().any(|line| line == "word=two words!"), "{log:?}");
        assert!(
            log.iter().all(|line| !line.contains(char::is_control)),
            "{log:?}"
        );
        let (view, config) = self
            .engine
            .images
            .inspect(&format!("{}:1", self.name))
            .await
            .unwrap();
        assert_eq!(view.id, id);
        assert_eq!(config.env.get("SAID").map(String::as_str), Some("yes"));
        assert_eq!(config.workdir, "/w");
        assert_eq!(config.labels.get("a.b").map(String::as_str), Some("c d"));
        assert!(view.size_bytes > 100_000, "{view:?}");
        let listed = self.engine.images.list().await.unwrap();
        let listed = listed.iter().find(|image| image.id == id).unwrap();
        assert_eq!(listed.names, [format!("{}:1", self.name)]);
        assert_eq!(self.engine.images.config_of(&id).await.unwrap(), config);
        let prefix = &id["sha256:".len()..][..12];
        assert_eq!(self.engine.images.inspect(prefix).await.unwrap().0.id, id);
        id
    }

    async fn lends_certificates_and_proxies_only_while_building(&self, base: &str) {
        let secret = format!(
            "http://user:{}@proxy.example:1",
            handler_base::random::hex(8)
        );
        let bundle = self.engine.folder.path().join("bundle.pem");
        std::fs::write(&bundle, "the authority").unwrap();
        let script = "echo proxy=$HTTPS_PROXY; ca=$SSL_CERT_FILE; \
            [ -z \"$ca\" ] || echo bundle=$(/bin/busybox cat $ca)";
        let (_folder, mut plan) =
            self.plan(&recipe(&format!("ARG SSL_CERT_FILE\n{}", run(script))));
        plan.proxy = BTreeMap::from([("HTTPS_PROXY".into(), secret.clone())]);
        if self.engine.flavour == Flavour::Docker {
            plan.ca_bundle = Some(bundle.clone());
            let (refused, _) = self.build(&plan).await;
            assert!(
                matches!(refused, Err(ImageError::Unsupported(_))),
                "{refused:?}"
            );
            plan.ca_bundle = None;
        } else {
            plan.ca_bundle = Some(bundle.clone());
        }
        let (id, log) = self.build(&plan).await;
        let id = id.unwrap_or_else(|error| panic!("{error}\n{}", log.join("\n")));
        assert!(log.contains(&format!("proxy={secret}")), "{log:?}");
        if plan.ca_bundle.is_some() {
            assert!(log.contains(&"bundle=the authority".to_owned()), "{log:?}");
        }
        let (_, config) = self.engine.images.inspect(&id).await.unwrap();
        let all = format!("{config:?}");
        assert!(!all.contains(&secret) && !all.contains("bundle"), "{all}");
        let tag = format!("{}:lent", self.name);
        self.engine.images.tag(&id, &tag).await.unwrap();
        let look = "! /bin/busybox grep -r 'the authority' /run /etc /tmp 2>/dev/null; \
            echo bundles=$(/bin/busybox find / -xdev -name '*ca-bundle*' -size +0)";
        let (_folder, plan) = self.plan(&format!("FROM {tag}\n{}", run(look)));
        let (id_after, log) = self.build(&plan).await;
        let id_after = id_after.unwrap_or_else(|error| panic!("{error}\n{}", log.join("\n")));
        assert!(log.contains(&"bundles=".to_owned()), "{log:?}");
        for image in [id_after, id] {
            self.engine.images.remove(&image).await.unwrap();
        }
        self.engine.images.inspect(base).await.unwrap();
    }

    async fn cancelled_builds_leave_nothing(&self) {
        let before = self.engine.images.list().await.unwrap();
        let mark = format!(
            "{}",
            70_000_000 + u32::from(handler_base::random::bytes::<1>()[0])
        );
        let steps = format!(
            "{}\n{}",
            run("echo first"),
            run(&format!("/bin/busybox sleep {mark}"))
        );
        let (folder, plan) = self.plan(&recipe(&steps));
        let (lines, mut said) = mpsc::channel::<String>(16);
        let cancel = CancellationToken::new();
        let watch = async {
            while let Some(line) = said.recv().await {
                if line.contains(&mark) {
                    eventually("the step to run", || processes_with(&mark) > 0).await;
                    cancel.cancel();
                }
            }
        };
        let build = async {
            let result = self.engine.images.build(&plan, &lines, &cancel).await;
            drop(lines);
            result
        };
        let (result, ()) = tokio::join!(build, watch);
        assert!(matches!(result, Err(ImageError::Cancelled)), "{result:?}");
        eventually("the step to end", || processes_with(&mark) == 0).await;
        self.nothing_left(folder.path(), before.len()).await;
    }

    /// The daemon is gone in the middle: its future is dropped, as nothing of it runs any more.
    async fn builds_of_a_dead_daemon_are_swept_away(&self) {
        if self.engine.flavour == Flavour::Docker {
            return;
        }
        let before = self.engine.images.list().await.unwrap();
        let mark = format!(
            "{}",
            80_000_000 + u32::from(handler_base::random::bytes::<1>()[0])
        );
        let (folder, plan) = self.plan(&recipe(&run(&format!("/bin/busybox sleep {mark}"))));
        let (lines, mut said) = mpsc::channel::<String>(16);
        let cancel = CancellationToken::new();
        let reader = tokio::spawn(async move { while said.recv().await.is_some() {} });
        {
            let build = self.engine.images.build(&plan, &lines, &cancel);
            tokio::select! {
                result = build => panic!("{result:?}"),
                () = eventually("the step to run", || processes_with(&mark) > 0) => {}
            }
        }
        drop(lines);
        reader.await.unwrap();
        // What the dropped future could not remove, a new daemon does.
        self.engine.images.sweep(self.engine.folder.path()).await;
        eventually("the step to end", || processes_with(&mark) == 0).await;
        self.nothing_left(folder.path(), before.len()).await;
    }

    async fn failed_builds_say_why_and_leave_nothing(&self) {
        let before = self.engine.images.list().await.unwrap();
        let steps = format!("{}\n{}", run("echo first"), run("echo the reason; exit 7"));
        let (folder, plan) = self.plan(&recipe(&steps));
        let (result, log) = self.build(&plan).await;
        assert!(
            matches!(&result, Err(ImageError::Failed(text)) if text.contains('7')),
            "{result:?}"
        );
        assert!(log.contains(&"the reason".to_owned()), "{log:?}");
        self.nothing_left(folder.path(), before.len()).await;
    }

    async fn nothing_left(&self, folder: &Path, images: usize) {
        let entries = std::fs::read_dir(folder).unwrap().flatten();
        let left: Vec<_> = entries
            .map(|e| e.file_name())
            .filter(|n| n != "sources" && n != "context.tar")
            .collect();
        assert!(
            left.is_empty()
                || left
                    .iter()
                    .all(|n| n.to_string_lossy().starts_with(".build-")),
            "{left:?}"
        );
        let engine = self.engine.api.connect().await.unwrap();
        if self.engine.flavour == Flavour::Podman {
            let mut list = Command::new("podman");
            list.args([
                "ps",
                "-a",
                "--external",
                "--format",
                "{{.Names}} {{.Command}}",
            ]);
            let said = String::from_utf8(list.output().unwrap().stdout).unwrap();
            assert!(!said.contains("working-container"), "{said}");
        }
        drop(engine);
        assert_eq!(self.engine.images.list().await.unwrap().len(), images);
    }

    async fn names_move_and_used_images_stay(&self, id: &str) {
        let images = &self.engine.images;
        let (first, second) = (format!("{}:1", self.name), format!("{}:2", self.name));
        images.tag(&first, &second).await.unwrap();
        images.remove(&second).await.unwrap();
        assert!(
            matches!(images.inspect(&second).await, Err(ImageError::NotFound(name)) if name == second)
        );
        images.tag(id, &second).await.unwrap();
        let container = self.container(&first).await;
        let refused = images.remove(id).await;
        assert!(matches!(refused, Err(ImageError::InUse(_))), "{refused:?}");
        assert_eq!(
            images.inspect(id).await.unwrap().0.names,
            [first.clone(), second.clone()]
        );
        images.remove(&second).await.unwrap();
        let refused = images.remove(&first).await;
        assert!(matches!(refused, Err(ImageError::InUse(_))), "{refused:?}");
        let options = bollard::query_parameters::RemoveContainerOptionsBuilder::new()
            .force(true)
            .build();
        let engine = self.engine.api.connect().await.unwrap();
        engine
            .remove_container(&container, Some(options))
            .await
            .unwrap();
        images.tag(id, &second).await.unwrap();
        images.remove(id).await.unwrap();
        assert!(matches!(
            images.inspect(id).await,
            Err(ImageError::NotFound(_))
        ));
        assert!(matches!(
            images.remove(id).await,
            Err(ImageError::NotFound(_))
        ));
        assert!(matches!(
            images.tag(id, "Bad Name").await,
            Err(ImageError::Invalid(_)) | Err(ImageError::NotFound(_))
        ));
    }

    async fn container(&self, image: &str) -> String {
        let config = bollard::models::ContainerCreateBody {
            image: Some(image.to_owned()),
            cmd: Some(vec!["/bin/busybox".into(), "true".into()]),
            ..Default::default()
        };
        let engine = self.engine.api.connect().await.unwrap();
        let none = None::<bollard::query_parameters::CreateContainerOptions>;
        engine.create_container(none, config).await.unwrap().id
    }

    async fn imports_archives_and_nothing_else(&self) {
        let images = &self.engine.images;
        let (folder, plan) = self.plan("FROM scratch\n");
        let zipped = folder.path().join("root.tar.gz");
        let file = std::fs::File::create(&zipped).unwrap();
        let mut gzip = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        gzip.write_all(&std::fs::read(&plan.context).unwrap())
            .unwrap();
        gzip.finish().unwrap();
        let config = ImageConfig {
            env: BTreeMap::from([("A".into(), "x y=z".into())]),
            workdir: "/w".into(),
            labels: BTreeMap::from([("l".into(), "m n".into())]),
        };
        let (lines, _said) = mpsc::channel(100);
        let cancel = CancellationToken::new();
        let name = format!("{}:imported", self.name);
        for path in [&plan.context, &zipped] {
            let id = images
                .import(path, Some(&name), &config, &lines, &cancel)
                .await
                .unwrap();
            let (view, found) = images.inspect(&name).await.unwrap();
            assert_eq!(view.id, id);
            assert_eq!(found, config);
            images.remove(&name).await.unwrap();
        }
        let id = images
            .import(
                &plan.context,
                None,
                &ImageConfig::default(),
                &lines,
                &cancel,
            )
            .await
            .unwrap();
        images.remove(&id).await.unwrap();
        let recipe = folder.path().join("sources/Containerfile");
        let refused = images
            .import(&recipe, Some(&name), &config, &lines, &cancel)
            .await;
        assert!(
            matches!(refused, Err(ImageError::Invalid(_))),
            "{refused:?}"
        );
    }

    async fn pulls_say_why_they_fail(&self) {
        let (lines, mut said) = mpsc::channel(100);
        let cancel = CancellationToken::new();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // Nobody answers there: the pull waits until it is cancelled.
        let waits = format!("127.0.0.1:{port}/a/b:1");
        let stop = cancel.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(500)).await;
            stop.cancel();
        });
        let result = self.engine.images.pull(&waits, &lines, &cancel).await;
        assert!(matches!(result, Err(ImageError::Cancelled)), "{result:?}");
        drop(listener);
        let result = self
            .engine
            .images
            .pull(&waits, &lines, &CancellationToken::new())
            .await;
        assert!(
            matches!(
                result,
                Err(ImageError::Unavailable(_) | ImageError::Failed(_))
            ),
            "{result:?}"
        );
        said.close();
        let bad = self.engine.images.pull("--all", &lines, &cancel).await;
        assert!(matches!(bad, Err(ImageError::Invalid(_))), "{bad:?}");
    }
}

/// Processes with this word as an argument.
fn processes_with(word: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter(|entry| {
            let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            command.split(|b| *b == 0).any(|arg| arg == word.as_bytes())
        })
        .count()
}

async fn eventually(what: &str, is_true: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
    while !is_true() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "waited in vain for {what}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
