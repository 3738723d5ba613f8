//! Tables `projects` and `agents` through their public functions.

use crate::fixtures::{session, store};
use handler_store::StoreError;
use handler_store::rows::{AgentRow, PageRequest, ProjectRow, SessionFilter};
use handler_types::agent::{AgentSettings, ModelAccess};
use handler_types::project::ProjectSettings;
use handler_types::{AgentId, ProjectId};

fn project(n: u8) -> ProjectRow {
    ProjectRow {
        id: ProjectId::from_random([n; 8]),
        settings: ProjectSettings {
            folder: format!("/home/ada/code/{n}"),
            ..ProjectSettings::default()
        },
        created_ms: i64::from(n),
        updated_ms: i64::from(n),
        used_ms: None,
    }
}

fn agent(n: u8, project: Option<&ProjectRow>, name: &str) -> AgentRow {
    AgentRow {
        id: AgentId::from_random([n; 8]),
        project: project.map(|project| project.id.clone()),
        settings: AgentSettings {
            name: Some(name.to_owned()),
            models: vec![ModelAccess {
                harness: Some("pi".to_owned()),
                account: None,
                provider: Some("here".to_owned()),
                model: Some("m".to_owned()),
            }],
            ..AgentSettings::default()
        },
        created_ms: i64::from(n),
        updated_ms: i64::from(n),
        used_ms: None,
    }
}

#[tokio::test]
async fn a_project_comes_with_its_agents_or_not_at_all_and_goes_with_them() {
    let temp = store();
    let (projects, agents) = (temp.store.projects(), temp.store.agents());
    let one = project(1);
    let twice = vec![agent(1, Some(&one), "Dev"), agent(2, Some(&one), "DEV")];
    let error = projects
        .insert(one.clone(), twice)
        .await
        .expect_err("twice");
    assert!(matches!(error, StoreError::NameTaken { .. }), "{error}");
    assert_eq!(projects.all().await.expect("all"), []);
    assert_eq!(agents.all().await.expect("all"), []);

    let dev = agent(1, Some(&one), "Dev");
    projects
        .insert(one.clone(), vec![dev.clone()])
        .await
        .expect("insert");
    assert_eq!(projects.get(&one.id).await.expect("get"), Some(one.clone()));
    assert_eq!(agents.get(&dev.id).await.expect("get"), Some(dev.clone()));
    let mut same = project(2);
    same.settings.folder.clone_from(&one.settings.folder);
    let error = projects.insert(same, vec![]).await.expect_err("folder");
    assert!(matches!(error, StoreError::FolderTaken { .. }), "{error}");

    let outside = agent(9, None, "Dev");
    agents.insert(outside.clone(), true).await.expect("insert");
    assert!(projects.delete(&one.id).await.expect("delete"));
    assert!(!projects.delete(&one.id).await.expect("again"));
    assert_eq!(agents.all().await.expect("all"), [outside]);
}

#[tokio::test]
async fn names_differ_in_a_project_and_its_default_is_one_of_its_own() {
    let temp = store();
    let (projects, agents) = (temp.store.projects(), temp.store.agents());
    let (one, two) = (project(1), project(2));
    for row in [&one, &two] {
        projects.insert(row.clone(), vec![]).await.expect("insert");
    }
    let dev = agent(1, Some(&one), "Dév");
    agents.insert(dev.clone(), true).await.expect("insert");
    let again = agents.insert(agent(2, Some(&one), "dÉV"), false).await;
    assert!(matches!(again, Err(StoreError::NameTaken { name }) if name == "dÉV"));
    agents
        .insert(agent(3, Some(&two), "Dév"), false)
        .await
        .expect("another project's");
    let review = agent(4, Some(&one), "Review");
    agents.insert(review.clone(), false).await.expect("insert");
    let renamed = AgentSettings {
        name: Some("DÉV".to_owned()),
        ..review.settings.clone()
    };
    let error = agents.update(&review.id, renamed, true).await;
    assert!(matches!(error, Err(StoreError::NameTaken { .. })));
    let default = |row: Option<ProjectRow>| row.expect("row").settings.default_agent;
    let kept = projects.get(&one.id).await.expect("get");
    assert_eq!(
        default(kept),
        Some(dev.id.clone()),
        "a refusal changes nothing"
    );

    let changed = agents
        .update(&review.id, review.settings.clone(), true)
        .await
        .expect("update");
    assert_eq!(changed.settings, review.settings);
    let now = projects.get(&one.id).await.expect("get");
    assert_eq!(default(now), Some(review.id.clone()));
    assert!(agents.delete(&review.id).await.expect("delete"));
    assert!(!agents.delete(&review.id).await.expect("again"));
    assert_eq!(default(projects.get(&one.id).await.expect("get")), None);

    let lost = agent(5, Some(&project(7)), "Lost");
    let error = agents.insert(lost.clone(), false).await;
    assert!(matches!(error, Err(StoreError::NotFound { .. })));
    let error = agents.update(&lost.id, lost.settings, false).await;
    assert!(matches!(error, Err(StoreError::NotFound { .. })));
}

#[tokio::test]
async fn projects_are_listed_last_used_first_and_sessions_by_agent() {
    let temp = store();
    let projects = temp.store.projects();
    for n in 1..=3 {
        projects.insert(project(n), vec![]).await.expect("insert");
    }
    projects.touch(&project(2).id).await.expect("touch");
    let order: Vec<_> = projects.all().await.expect("all");
    let order: Vec<_> = order.iter().map(|row| row.created_ms).collect();
    assert_eq!(order, [2, 3, 1]);

    let sessions = temp.store.sessions();
    let owner = AgentId::from_random([1; 8]);
    for n in 0..4 {
        let mut row = session(n);
        row.agent = (n % 2 == 1).then(|| owner.clone());
        sessions.insert(row.clone()).await.expect("insert");
        assert_eq!(sessions.get(&row.id).await.expect("get"), Some(row));
    }
    let filter = SessionFilter {
        agent: Some(owner),
        ..SessionFilter::default()
    };
    let page = sessions.list(filter, PageRequest::default()).await;
    let of_agent: Vec<_> = page.expect("page").items;
    let ms: Vec<_> = of_agent.iter().map(|row| row.created_ms).collect();
    assert_eq!(ms, [3, 1]);
}
