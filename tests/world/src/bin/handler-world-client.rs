//! A client as programs written in Rust have them: reqwest with the roots it finds in the environment.
//! Prints what is answered to a GET of its argument, with `$TOKEN` as bearer token.

use anyhow::Context as _;
use std::io::Write as _;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    // Cannot fail: nothing was installed before.
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let url = std::env::args().nth(1).context("an address to get")?;
    let token = std::env::var("TOKEN").context("TOKEN")?;
    let answer = reqwest::Client::new().get(url).bearer_auth(token);
    let body = answer.send().await?.error_for_status()?.bytes().await?;
    std::io::stdout().write_all(&body)?;
    Ok(())
}
