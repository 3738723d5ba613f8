//! What is refused, with the titles of the contract; what is kept; what contexts guard.

use crate::search::{holds, search_files, spellings};
use crate::support::{LONG, project, show, text, world};
use anyhow::{Context as _, ensure};
use handler_client::{Client, ClientError};
use handler_testkit::World;
use handler_types::Problem;
use handler_types::account::{AccountLoginRequest, AccountRequest, AccountStatus};
use handler_types::agent::{AgentRequest, ModelAccess};
use handler_types::api::{ProviderRequest, ProviderView};
use handler_types::context::{ContextColor, ContextRequest};
use handler_types::project::{CreateProject, ProjectSettings};
use handler_types::provider::{FileSource, Protocol, ProviderModel, SecretRef};
use handler_types::session::CreateSession;

/// The refusal of a call that must be refused.
fn refused<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> anyhow::Result<Problem> {
    let error = answer.err().context("it is refused")?;
    let problem = error.problem().cloned();
    problem.with_context(|| format!("a problem: {error}"))
}

fn is(problem: &Problem, status: u16, title: &str) -> anyhow::Result<()> {
    ensure!(
        (problem.status, problem.title.as_str()) == (status, title),
        "{problem:#?}"
    );
    Ok(())
}

fn of(harness: &str, name: &str) -> AccountRequest {
    AccountRequest {
        name: name.into(),
        harness: harness.into(),
        ..AccountRequest::default()
    }
}

fn provider(name: &str) -> ProviderRequest {
    ProviderRequest {
        name: name.into(),
        endpoints: [(Protocol::Responses, "http://127.0.0.1:9/v1".to_owned())].into(),
        models: vec![ProviderModel {
            id: "m".into(),
            ..ProviderModel::default()
        }],
        ..ProviderRequest::default()
    }
}

fn token() -> String {
    format!("sk-ant-oat01-{}", handler_base::random::hex(40))
}

#[tokio::test]
async fn accounts_are_kept_by_hand_and_by_us_and_refusals_have_their_titles() -> anyhow::Result<()>
{
    let world = world().await?;
    let client = world.client();
    client.create_account(&of("claude-code", "perso")).await?;
    client.add_provider(&provider("here")).await?;
    for (request, status, title) in [
        (of("claude-code", "perso"), 409, "cannot create the account"),
        (of("claude-code", "here"), 409, "cannot create the account"),
        (of("claude-code", "../x"), 409, "cannot create the account"),
        (of("pi", "two"), 409, "cannot create the account"),
        (of("emacs", "two"), 409, "cannot create the account"),
        (
            AccountRequest {
                plan: Some("gold".into()),
                ..of("claude-code", "two")
            },
            409,
            "cannot create the account",
        ),
        (
            AccountRequest {
                contexts: vec!["Work".into()],
                ..of("claude-code", "two")
            },
            400,
            "unknown context",
        ),
    ] {
        is(
            &refused(client.create_account(&request).await)?,
            status,
            title,
        )?;
    }
    let other = refused(client.put_account("perso", &of("codex", "perso")).await)?;
    is(&other, 409, "an account's harness cannot change")?;
    is(
        &refused(client.put_account("none", &of("codex", "none")).await)?,
        404,
        "account not found",
    )?;
    is(
        &refused(client.delete_account("none").await)?,
        404,
        "account not found",
    )?;
    is(
        &refused(client.add_provider(&provider("perso")).await)?,
        409,
        "cannot create the provider",
    )?;

    // By hand, with comments that stay; a wrong one stands in nobody's way.
    let folder = world.scratch().folder("config").join("accounts");
    let file = folder.join("hand.toml");
    let written = "# by hand\napiVersion = \"handler.account/v1\"\nharness = \"codex\" # mine\n";
    std::fs::write(&file, written)?;
    std::fs::write(
        folder.join("bad.toml"),
        "harness = \"codex\"\ntokens = \"sk-in-vain\"\n",
    )?;
    world
        .cli_ok(&["account", "set", "hand", "--description", "me@example.com"])
        .await?;
    let now = std::fs::read_to_string(&file)?;
    ensure!(
        now.contains("# by hand") && now.contains("# mine") && now.contains("me@"),
        "{now}"
    );
    let listed = world.cli_ok(&["account", "list"]).await?;
    ensure!(
        listed.contains("bad.toml:2") && !listed.contains("sk-in-vain"),
        "{listed}"
    );
    let wrong = refused(client.put_account("bad", &of("codex", "bad")).await)?;
    is(&wrong, 409, "invalid account: fix its file")?;
    world
        .cli_ok(&["account", "set", "hand", "--rename", "other"])
        .await?;
    world.cli_ok(&["account", "rm", "other", "bad"]).await?;
    ensure!(client.accounts().await?.len() == 1);
    world.assert_clean(LONG).await
}

#[tokio::test]
async fn logins_go_in_never_come_out_and_wrong_ones_are_refused() -> anyhow::Result<()> {
    let mut world = world().await?;
    let client = world.client();
    client.create_account(&of("claude-code", "perso")).await?;
    client.create_account(&of("codex", "plus")).await?;
    let value = token();
    let signature = handler_base::random::hex(32);
    let file = format!("{{\"tokens\":{{\"access_token\":\"{signature}\",\"account_id\":\"a\"}}}}");
    let token = |text: &str| AccountLoginRequest {
        token: Some(text.into()),
        ..AccountLoginRequest::default()
    };
    let with_file = |text: &str| AccountLoginRequest {
        file: Some(text.into()),
        ..AccountLoginRequest::default()
    };
    let both = AccountLoginRequest {
        file: Some(file.clone()),
        ..token(&value)
    };
    let stored = AccountLoginRequest {
        token_ref: Some(SecretRef::Secret("tokens/x".into())),
        ..AccountLoginRequest::default()
    };
    for (name, request) in [
        ("perso", AccountLoginRequest::default()),
        ("perso", both),
        ("perso", token("code-from-the-page")),
        ("perso", token("sk-ant-oat01-short")),
        ("perso", stored),
        ("perso", with_file(&file)),
        ("plus", token(&value)),
        ("plus", with_file("hello")),
        (
            "plus",
            with_file(&format!("{{\"token\":\"{}\"}}", "x".repeat(70_000))),
        ),
    ] {
        let problem = refused(client.log_in(name, &request).await)?;
        is(&problem, 422, "login refused")?;
        ensure!(!problem.detail.contains(&value) && !problem.detail.contains("code-from"));
    }
    ensure!(client.secrets().await?.is_empty());
    let done = world
        .cli_with_input(&["account", "token", "perso"], value.as_bytes())
        .await?;
    ensure!(done.status.success(), "{}", show(&done.stderr));
    let done = world
        .cli_with_input(&["account", "import", "plus", "-"], file.as_bytes())
        .await?;
    ensure!(done.status.success(), "{}", show(&done.stderr));
    for account in client.accounts().await? {
        ensure!(account.status == AccountStatus::Ready, "{account:?}");
        ensure!(
            account.logged_in_at.is_some() && !account.hosts.is_empty(),
            "{account:?}"
        );
    }
    // The store's own door is closed to it, and logins of a person's own are others.
    let set = ["secret", "set", "accounts/perso/token", "--file", "-"];
    let refusal = world.cli_with_input(&set, b"something").await?;
    let told = show(&refusal.stderr);
    ensure!(told.contains("an account's login is set on it"), "{told}");
    let removal = world.cli(&["secret", "rm", "accounts/perso/token"]).await?;
    ensure!(show(&removal.stderr).contains("an account's login is set on it"));
    ensure!(client.logins().await?.is_empty());
    // Its login is the person's to run.
    let run = world.cli(&["account", "login", "perso"]).await?;
    ensure!(
        show(&run.stderr).contains("claude setup-token"),
        "{}",
        show(&run.stderr)
    );
    renamed_and_removed(
        &mut world,
        &[spellings(&value), spellings(&signature)].concat(),
    )
    .await
}

/// Under other names they are kept, and the values are nowhere in the open.
async fn renamed_and_removed(world: &mut World, wanted: &[String]) -> anyhow::Result<()> {
    let client = world.client();
    world
        .cli_ok(&[
            "account", "set", "perso", "--rename", "mine", "--plan", "pro",
        ])
        .await?;
    world
        .cli_ok(&["account", "set", "plus", "--rename", "team"])
        .await?;
    let listed = world.cli_ok(&["--json", "account", "list"]).await?;
    let all = client.accounts().await?;
    ensure!(
        all.iter().all(|a| a.status == AccountStatus::Ready),
        "{all:?}"
    );
    let paths: Vec<String> = client
        .secrets()
        .await?
        .into_iter()
        .map(|s| s.path)
        .collect();
    ensure!(paths == ["accounts/mine/token"], "{paths:?}");
    ensure!(!holds(listed.as_bytes(), wanted));
    world.stop_daemon().await?;
    let (mut found, mut read) = (Vec::new(), 0);
    search_files(world.scratch().path(), wanted, &mut found, &mut read)?;
    ensure!(found.is_empty() && read > 5, "{found:?} of {read}");
    world.start_daemon().await?;
    world.cli_ok(&["account", "rm", "mine", "team"]).await?;
    ensure!(world.client().secrets().await?.is_empty());
    Ok(())
}

/// The login's own command, with a program of that name in place of what npm would fetch.
#[tokio::test]
async fn a_login_runs_on_this_terminal_and_leaves_its_file_with_us_only() -> anyhow::Result<()> {
    let world = world().await?;
    world.client().create_account(&of("codex", "plus")).await?;
    let signature = handler_base::random::hex(32);
    let bin = world.work().join("bin");
    std::fs::create_dir_all(&bin)?;
    let script = format!(
        "#!/bin/sh\n[ -t 0 ] && printf 'code? '; read -r code; [ \"$code\" = ok ] || {{ echo no; exit 3; }}\n\
         printf '{{\"token\":\"{signature}\"}}' > \"$CODEX_HOME/auth.json\"; echo \"$CODEX_HOME\" > {}\n",
        text(world.work().join("where"))?
    );
    let program = bin.join("npx");
    std::fs::write(&program, script)?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode)?;
    let path = format!(
        "{}:{}",
        text(&bin)?,
        std::env::var("PATH").unwrap_or_default()
    );
    let args = ["account", "login", "plus", "--keep-open"];
    let mut tty = world.on_tty_with(&args, (80, 24), &[("PATH", &path)])?;
    tty.until("code? ").await?;
    tty.type_in("ok\r")?;
    tty.until("press Enter").await?;
    tty.type_in("\r")?;
    ensure!(tty.ended().await? == 0, "{}", tty.text());
    let account = world.client().accounts().await?.remove(0);
    ensure!(account.status == AccountStatus::Ready, "{account:?}");
    let place = std::fs::read_to_string(world.work().join("where"))?;
    ensure!(
        !std::path::Path::new(place.trim()).exists(),
        "{place} is left"
    );
    let before = account.logged_in_at;
    let mut tty = world.on_tty_with(&args[..3], (80, 24), &[("PATH", &path)])?;
    tty.until("code? ").await?;
    tty.type_in("\u{3}")?;
    ensure!(tty.ended().await? == 1, "{}", tty.text());
    tty.until("nothing was changed").await?;
    ensure!(world.client().accounts().await?[0].logged_in_at == before);
    Ok(())
}

#[tokio::test]
async fn a_provider_is_changed_and_its_key_stays_until_it_is_said() -> anyhow::Result<()> {
    let world = world().await?;
    let client = world.client();
    let value = format!("sk-{}", handler_base::random::hex(24));
    let request = ProviderRequest {
        key: Some(value.clone()),
        ..provider("here")
    };
    client.add_provider(&request).await?;
    is(
        &refused(client.add_provider(&request).await)?,
        409,
        "cannot create the provider",
    )?;
    is(
        &refused(client.put_provider("none", &provider("none")).await)?,
        404,
        "provider not found",
    )?;
    client.add_provider(&provider("taken")).await?;
    is(
        &refused(client.put_provider("here", &provider("taken")).await)?,
        409,
        "cannot rename the provider",
    )?;
    let odd = ProviderRequest {
        files: Some(serde_json::from_value(
            serde_json::json!({"codex": {"nowhere": {"content": "x"}}}),
        )?),
        ..provider("here")
    };
    ensure!(
        refused(client.put_provider("here", &odd).await)?
            .detail
            .contains("instructions_md")
    );

    let prompt = world.work().join("codex.md");
    std::fs::write(&prompt, "You are Codex.")?;
    let file = format!("codex/instructions_md={}", prompt.display());
    world
        .cli_ok(&[
            "provider",
            "set",
            "here",
            "--description",
            "mine",
            "--file",
            &file,
        ])
        .await?;
    let view = found(&client, "here").await?;
    ensure!(
        view.key.as_deref() == Some("secret") && view.status == "ready",
        "{view:?}"
    );
    ensure!(view.files["codex"]["instructions_md"] == FileSource::File(text(&prompt)?));
    world
        .cli_ok(&["provider", "set", "here", "--rename", "there"])
        .await?;
    let paths: Vec<String> = client
        .secrets()
        .await?
        .into_iter()
        .map(|s| s.path)
        .collect();
    ensure!(paths == ["providers/there/apiKey"], "{paths:?}");
    ensure!(!found(&client, "there").await?.files.is_empty());
    in_use(&world).await
}

async fn found(client: &Client, name: &str) -> anyhow::Result<ProviderView> {
    let all = client.providers().await?;
    all.into_iter()
        .find(|provider| provider.name == name)
        .context(name.to_owned())
}

/// One that an agent uses keeps its name; its key goes when that is said, and a person's own reference stays.
async fn in_use(world: &World) -> anyhow::Result<()> {
    let client = world.client();
    let folder = project(world, "app")?;
    let made = CreateProject {
        folder: text(&folder)?,
        agents: vec![agent(ModelAccess {
            provider: Some("there".into()),
            ..ModelAccess::default()
        })],
        ..CreateProject::default()
    };
    client.create_project(&made).await?;
    ensure!(found(&client, "there").await?.agents.len() == 1);
    let used = refused(client.put_provider("there", &provider("elsewhere")).await)?;
    is(&used, 409, "provider in use: cannot rename it")?;
    world
        .cli_ok(&["provider", "set", "there", "--no-key"])
        .await?;
    ensure!(found(&client, "there").await?.key.is_none() && client.secrets().await?.is_empty());

    // A key that a person keeps elsewhere stays theirs.
    let path = world
        .scratch()
        .folder("config")
        .join("providers/there.toml");
    let text = std::fs::read_to_string(&path)?;
    std::fs::write(
        &path,
        text.replacen(
            "[endpoints]",
            "apiKey = { env = \"MY_KEY\" }\n\n[endpoints]",
            1,
        ),
    )?;
    world
        .cli_ok(&["provider", "set", "there", "--description", "other"])
        .await?;
    ensure!(found(&client, "there").await?.key.as_deref() == Some("env"));
    Ok(())
}

const TITLE: &str = "not for this project's context";

fn agent(access: ModelAccess) -> AgentRequest {
    AgentRequest {
        name: Some("Dev".into()),
        models: vec![access],
        ..AgentRequest::default()
    }
}

#[tokio::test]
async fn a_context_guards_saves_changes_starts_and_tells_it_as_a_problem() -> anyhow::Result<()> {
    let world = world().await?;
    let client = world.client();
    contexts(&world).await?;
    let home = [
        "account",
        "add",
        "perso",
        "claude-code",
        "--context",
        "Home",
    ];
    world.cli_ok(&home).await?;
    client.add_provider(&provider("here")).await?;
    let on_account = || ModelAccess {
        account: Some("perso".into()),
        ..ModelAccess::default()
    };
    let on_provider = || ModelAccess {
        provider: Some("here".into()),
        ..ModelAccess::default()
    };
    let folder = text(project(&world, "app")?)?;
    let request = |context: Option<&str>, access: ModelAccess| CreateProject {
        folder: folder.clone(),
        context: context.map(str::to_owned),
        agents: vec![agent(access)],
        ..CreateProject::default()
    };
    is(
        &refused(
            client
                .create_project(&request(Some("None"), on_account()))
                .await,
        )?,
        400,
        "unknown context",
    )?;
    for access in [on_account(), on_provider()] {
        let problem = refused(client.create_project(&request(Some("Work"), access)).await)?;
        is(&problem, 409, TITLE)?;
        ensure!(
            problem.detail.contains("--context \"Work\""),
            "{}",
            problem.detail
        );
    }
    for access in [
        ModelAccess::default(),
        ModelAccess {
            provider: Some("here".into()),
            ..on_account()
        },
        ModelAccess {
            harness: Some("codex".into()),
            ..on_account()
        },
    ] {
        let problem = refused(client.create_project(&request(None, access)).await)?;
        is(&problem, 400, "model access unusable")?;
    }
    let made = client
        .create_project(&request(Some("Home"), on_account()))
        .await?;
    let problem = made.agents[0].problem.clone().unwrap_or_default();
    ensure!(problem.contains("claude setup-token"), "{problem}");
    // Its agents keep their settings, so its context stays.
    let settings = ProjectSettings {
        folder: folder.clone(),
        context: Some("Work".into()),
        ..ProjectSettings::default()
    };
    is(
        &refused(client.put_project(made.id.as_str(), &settings).await)?,
        409,
        TITLE,
    )?;
    is(
        &refused(client.delete_context("Home").await)?,
        409,
        "context in use",
    )?;
    let listed = world.cli_ok(&["context", "list"]).await?;
    ensure!(
        listed.contains("perso") && listed.contains("app"),
        "{listed}"
    );
    made_for_another_since(&world).await?;
    anyway(&world, &folder).await
}

/// Contexts themselves: names that are taken, unknown or no names.
async fn contexts(world: &World) -> anyhow::Result<()> {
    let client = world.client();
    let bad = ContextRequest {
        name: "any".into(),
        color: ContextColor::Blue,
    };
    ensure!(refused(client.create_context(&bad).await)?.status == 400);
    world.cli_ok(&["context", "add", "Work"]).await?;
    world
        .cli_ok(&["context", "add", "Home", "--color", "pink"])
        .await?;
    let again = ContextRequest {
        name: "work".into(),
        ..bad
    };
    is(
        &refused(client.create_context(&again).await)?,
        409,
        "context exists",
    )?;
    is(
        &refused(client.put_context("Work", &again).await)?,
        409,
        "a context's name cannot change",
    )?;
    is(
        &refused(client.delete_context("None").await)?,
        404,
        "context not found",
    )?;
    Ok(())
}

/// Made for something else since: the agent says so, and nothing starts on it.
async fn made_for_another_since(world: &World) -> anyhow::Result<()> {
    let client = world.client();
    world
        .cli_ok(&["account", "set", "perso", "--context", "Work"])
        .await?;
    let agent = client.agent("app/Dev").await?;
    let problem = agent.problem.clone().unwrap_or_default();
    ensure!(problem.contains("made for Work"), "{problem}");
    for (account, provider) in [(None, None), (None, Some("here".to_owned()))] {
        let start = CreateSession {
            agent_id: Some(agent.id.clone()),
            account,
            provider,
            ..CreateSession::default()
        };
        // A program that is not installed is told first.
        let problem = refused(client.create_session(&start).await)?;
        ensure!(
            problem.title == TITLE || problem.detail.contains("not installed"),
            "{problem:?}"
        );
    }
    Ok(())
}

/// Outside the project it runs only when somebody says so.
async fn anyway(world: &World, folder: &str) -> anyhow::Result<()> {
    let args = ["run", "x", "--provider", "here", "--folder", folder];
    let refusal = show(&world.cli(&args).await?.stderr);
    ensure!(
        refusal.contains("not for this project's context"),
        "{refusal}"
    );
    let args = [&args[..], &["--anyway"]].concat();
    let unasked = show(&world.cli(&args).await?.stderr);
    ensure!(unasked.contains("type yes"), "{unasked}");
    for (typed, told) in [("no\r", "not run"), ("yes\r", "is installed")] {
        let mut tty = world.on_tty(&args, (80, 24))?;
        tty.until("Type yes").await?;
        tty.type_in(typed)?;
        // What it says last may be read after its end.
        tty.until(told).await?;
        ensure!(tty.ended().await? != 0);
    }
    Ok(())
}
