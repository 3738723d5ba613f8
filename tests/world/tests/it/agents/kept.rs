//! The daemon is killed while projects are made: each is there with all its agents or not at all, and none twice.

use crate::crash::chance;
use crate::sessions::Stage;
use crate::support::{is_soak, text};
use anyhow::{Context as _, ensure};
use handler_testkit::World;
use handler_types::agent::{AgentRequest, ModelAccess};
use handler_types::project::CreateProject;
use std::time::Instant;

fn agent(name: &str) -> AgentRequest {
    AgentRequest {
        name: Some(name.into()),
        models: vec![ModelAccess {
            harness: None,
            account: None,
            provider: Some("scripted".into()),
            model: None,
        }],
        ..AgentRequest::default()
    }
}

#[tokio::test]
async fn killed_while_a_project_is_made_it_is_whole_or_not_there() -> anyhow::Result<()> {
    let mut stage = Stage::with(World::start().await?).await?;
    let names = ["Dev", "Review", "Docs", "Tests"];
    let request = |n: u32, stage: &Stage| -> anyhow::Result<CreateProject> {
        let folder = stage.world.work().join(format!("p{n}"));
        std::fs::create_dir_all(&folder)?;
        Ok(CreateProject {
            folder: text(folder)?,
            agents: names.iter().map(|name| agent(name)).collect(),
            ..CreateProject::default()
        })
    };
    let begun = Instant::now();
    stage.client().create_project(&request(0, &stage)?).await?;
    let usual = begun.elapsed();
    let rounds = if is_soak() { 100 } else { 10 };
    let mut made = 1;
    for n in 1..=rounds {
        let (client, asked) = (stage.client(), request(n, &stage)?);
        let again = asked.clone();
        let making = tokio::spawn(async move { client.create_project(&asked).await });
        tokio::time::sleep(chance(usual.mul_f64(1.5))).await;
        stage.world.kill9()?;
        let was_answered = making.await?.is_ok();
        stage
            .world
            .start_daemon()
            .await
            .with_context(|| format!("round {n}"))?;
        let client = stage.client();
        let found = client.projects(&again.folder).await?;
        ensure!(found.len() <= 1, "round {n}: {found:#?}");
        ensure!(
            !was_answered || found.len() == 1,
            "round {n}: it was said to be made"
        );
        if let Some(project) = found.first() {
            ensure!(
                project.agents.len() == names.len(),
                "round {n}: {project:#?}"
            );
            made += 1;
            // Asked for again, it is not made twice.
            ensure!(client.create_project(&again).await.is_err(), "round {n}");
        }
        ensure!(client.projects("").await?.len() == made, "round {n}");
        ensure!(
            client.agents_of("").await?.len() == made * names.len(),
            "round {n}"
        );
    }
    Ok(())
}
