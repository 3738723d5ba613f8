//! `handler account`: subscriptions that agent programs log in with. Tokens come from a prompt without echo, a file or
//! standard input, never from argv.

mod login;

use super::Outcome;
use super::login::read as read_file;
use super::secret::read_secret;
use crate::context::Context;
use crate::exit::Failure;
use clap::{Args, Subcommand};
use handler_client::Client;
use handler_types::account::{
    AccountLoginRequest, AccountRequest, AccountStatus, AccountView, LoginKind,
};
use handler_types::api::HarnessView;
use handler_types::provider::SecretRef;
use std::path::PathBuf;

/// What to do with accounts.
#[derive(Debug, Subcommand)]
pub enum AccountAction {
    /// List accounts; their logins are never shown
    #[command(visible_alias = "ls")]
    List,
    /// Make an account of an agent program
    Add(AddArgs),
    /// Change an account's name, description, plan, connectors or contexts; its login stays
    Set(SetArgs),
    /// Give an account its token, asked for without echo, or say where the token is kept
    Token {
        /// The account
        name: String,
        #[command(flatten)]
        kept: TokenPlace,
    },
    /// Log in: runs the agent program's own login on this terminal and keeps the file it leaves
    Login {
        /// The account
        name: String,
        /// Wait for Enter at the end, so that an error stays readable
        #[arg(long)]
        keep_open: bool,
    },
    /// Keep a credential file that the agent program's login has left already
    Import {
        /// The account
        name: String,
        /// The file, e.g. `~/.codex/auth.json` (`-`: standard input)
        file: PathBuf,
    },
    /// Take an account's login away; the account stays
    Logout {
        /// The account
        name: String,
    },
    /// Remove accounts with their logins
    Rm {
        /// The accounts
        #[arg(required = true)]
        names: Vec<String>,
    },
}

/// Where a token is kept instead of with Handler.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct TokenPlace {
    /// In a variable of the daemon's environment
    #[arg(long, value_name = "VARIABLE")]
    pub env: Option<String>,
    /// In a file, its first line
    #[arg(long, value_name = "PATH")]
    pub file: Option<String>,
    /// A command prints it, e.g. `pass show claude`
    #[arg(long, value_name = "COMMAND")]
    pub command: Option<String>,
}

/// `handler account add`.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// A name of your choice
    pub name: String,
    /// The agent program (`handler harness list`)
    pub harness: String,
    /// For people, e.g. the address it was made with
    #[arg(long)]
    pub description: Option<String>,
    /// The subscription's plan
    #[arg(long)]
    pub plan: Option<String>,
    /// Let the program use the account's own connectors
    #[arg(long)]
    pub connectors: bool,
    /// A context it may be used in, or `any` (repeatable)
    #[arg(long)]
    pub context: Vec<String>,
    /// Ask for its token now
    #[arg(long, group = "token_from")]
    pub token: bool,
    /// Its token is in a variable of the daemon's environment
    #[arg(long, value_name = "VARIABLE", group = "token_from")]
    pub token_env: Option<String>,
    /// Its token is the first line of a file
    #[arg(long, value_name = "PATH", group = "token_from")]
    pub token_file: Option<String>,
    /// A command prints its token, e.g. `pass show claude`
    #[arg(long, value_name = "COMMAND", group = "token_from")]
    pub token_command: Option<String>,
}

/// `handler account set`.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// The account
    pub name: String,
    /// Another name, while nothing uses it
    #[arg(long)]
    pub rename: Option<String>,
    /// For people; an empty text takes it away
    #[arg(long)]
    pub description: Option<String>,
    /// The subscription's plan; an empty text takes it away
    #[arg(long)]
    pub plan: Option<String>,
    /// Whether the program may use the account's own connectors
    #[arg(long, value_name = "BOOL")]
    pub connectors: Option<bool>,
    /// A context it may be used in, or `any` (repeatable; replaces those it has; an empty text: none)
    #[arg(long)]
    pub context: Vec<String>,
}

impl TokenPlace {
    fn reference(self) -> Option<SecretRef> {
        let env = self.env.map(SecretRef::Env);
        let file = self.file.map(|path| SecretRef::File(on_host(path)));
        env.or(file)
            .or_else(|| self.command.map(|text| SecretRef::Command(words(&text))))
    }
}

/// A path that the shell did not make whole is meant from the current folder.
fn on_host(path: String) -> String {
    match path.starts_with('/') || path.starts_with("~/") {
        true => path,
        false => super::absolute(&path).unwrap_or(path),
    }
}

/// A command's words; one with more than words is given to a shell.
fn words(text: &str) -> Vec<String> {
    if text.contains(|c: char| "\"'\\$`|&;<>()*?~#".contains(c)) {
        return vec!["sh".to_owned(), "-c".to_owned(), text.to_owned()];
    }
    text.split_whitespace().map(str::to_owned).collect()
}

/// Runs it.
///
/// # Errors
/// [`Failure`].
pub async fn run(action: AccountAction, context: &Context) -> Outcome {
    let client = context.client()?;
    match action {
        AccountAction::List => {
            let accounts = client.accounts().await?;
            context.out.show(&accounts, |out, accounts| {
                let rows: Vec<Vec<String>> = accounts.iter().map(row).collect();
                out.table(
                    &[
                        "NAME",
                        "HARNESS",
                        "PLAN",
                        "CONTEXTS",
                        "LOGGED IN",
                        "SESSIONS",
                        "STATUS",
                    ],
                    &rows,
                );
            });
        }
        AccountAction::Add(args) => return add(args, &client, context).await,
        AccountAction::Set(args) => {
            let view = set(args, &client).await?;
            told(&view, context);
        }
        AccountAction::Token { name, kept } => {
            let request = match kept.reference() {
                Some(reference) => AccountLoginRequest {
                    token_ref: Some(reference),
                    ..AccountLoginRequest::default()
                },
                None => AccountLoginRequest {
                    token: Some(read_secret(None, "token")?),
                    ..AccountLoginRequest::default()
                },
            };
            told(&client.log_in(&name, &request).await?, context);
        }
        AccountAction::Login { name, keep_open } => {
            return login::run(&name, keep_open, &client, context).await;
        }
        AccountAction::Import { name, file } => {
            let request = AccountLoginRequest {
                file: Some(read_file(&file)?),
                ..AccountLoginRequest::default()
            };
            told(&client.log_in(&name, &request).await?, context);
        }
        AccountAction::Logout { name } => {
            client.log_out(&name).await?;
            context
                .out
                .note(format!("{name} is not logged in any more"));
        }
        AccountAction::Rm { names } => {
            for name in names {
                client.delete_account(&name).await?;
                context.out.note(format!("removed {name}"));
            }
        }
    }
    Ok(0)
}

async fn add(args: AddArgs, client: &Client, context: &Context) -> Outcome {
    let place = TokenPlace {
        env: args.token_env,
        file: args.token_file,
        command: args.token_command,
    };
    // Asked for first: an empty answer makes nothing.
    let token = match args.token {
        true => Some(read_secret(None, "token")?),
        false => None,
    };
    let login = AccountLoginRequest {
        token,
        token_ref: place.reference(),
        file: None,
    };
    let request = AccountRequest {
        name: args.name,
        harness: args.harness,
        description: args.description,
        plan: args.plan,
        connectors: args.connectors,
        contexts: args.context,
    };
    let mut view = client.create_account(&request).await?;
    if login != AccountLoginRequest::default() {
        view = match client.log_in(&view.name, &login).await {
            Ok(view) => view,
            Err(error) => {
                // Whole or not at all.
                client.delete_account(&view.name).await.ok();
                return Err(error.into());
            }
        };
    }
    told(&view, context);
    Ok(0)
}

async fn set(args: SetArgs, client: &Client) -> Result<AccountView, Failure> {
    let before = find(client, &args.name).await?;
    let filled =
        |typed: Option<String>, own: Option<String>| typed.or(own).filter(|text| !text.is_empty());
    let contexts = match args.context.is_empty() {
        true => before.contexts,
        false => args.context.into_iter().filter(|c| !c.is_empty()).collect(),
    };
    let request = AccountRequest {
        name: args.rename.unwrap_or(before.name),
        harness: before.harness,
        description: filled(args.description, before.description),
        plan: filled(args.plan, before.plan),
        connectors: args.connectors.unwrap_or(before.connectors),
        contexts,
    };
    Ok(client.put_account(&args.name, &request).await?)
}

/// One account, by name.
pub(super) async fn find(client: &Client, name: &str) -> Result<AccountView, Failure> {
    let all = client.accounts().await?;
    let found = all.into_iter().find(|account| account.name == name);
    found.ok_or_else(|| {
        Failure::Usage(format!(
            "there is no account `{name}`; `handler account list` shows them"
        ))
    })
}

/// The harness of that name.
async fn harness(client: &Client, name: &str) -> Result<HarnessView, Failure> {
    let all = client.harnesses().await?;
    let found = all.into_iter().find(|harness| harness.name == name);
    found.ok_or_else(|| Failure::Usage(format!("there is no harness `{name}`")))
}

fn word(status: AccountStatus) -> &'static str {
    match status {
        AccountStatus::Ready => "ready",
        AccountStatus::Incomplete => "incomplete",
        AccountStatus::Invalid => "invalid",
    }
}

fn row(account: &AccountView) -> Vec<String> {
    let state = match account.problems.is_empty() {
        true => word(account.status).to_owned(),
        false => format!("{}: {}", word(account.status), account.problems.join("; ")),
    };
    let logged_in = match (&account.logged_in_at, &account.token) {
        (Some(at), _) => at.clone(),
        (None, Some(source)) => format!("({source})"),
        (None, None) => String::new(),
    };
    vec![
        account.name.clone(),
        account.harness.clone(),
        account.plan.clone().unwrap_or_default(),
        account.contexts.join(", "),
        logged_in,
        account.sessions.to_string(),
        state,
    ]
}

fn told(account: &AccountView, context: &Context) {
    context.out.show(account, |out, account| {
        out.line(format!("{} ({})", account.name, word(account.status)));
    });
    for problem in &account.problems {
        context.out.note(problem);
    }
    if account.login == Some(LoginKind::File) && account.status == AccountStatus::Incomplete {
        let name = &account.name;
        context.out.note(format!(
            "or keep a file that its login has left already: handler account import {name} FILE"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commands_words_are_its_own_and_more_goes_to_a_shell() {
        assert_eq!(words("pass show claude"), ["pass", "show", "claude"]);
        let quoted = "pass show 'my claude'";
        assert_eq!(words(quoted), ["sh", "-c", quoted]);
    }

    #[test]
    fn a_place_is_one_of_three() {
        let place = |env: Option<&str>, file: Option<&str>, command: Option<&str>| TokenPlace {
            env: env.map(str::to_owned),
            file: file.map(str::to_owned),
            command: command.map(str::to_owned),
        };
        let reference = |place: TokenPlace| place.reference().map(|r| r.source());
        assert_eq!(reference(place(None, None, None)), None);
        assert_eq!(reference(place(Some("A"), None, None)), Some("env"));
        assert_eq!(reference(place(None, Some("~/a"), None)), Some("file"));
        assert_eq!(reference(place(None, None, Some("pass"))), Some("command"));
    }
}
