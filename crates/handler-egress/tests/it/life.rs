//! One filter at a time; none for longer than it is needed.

use crate::world::{Filter, enforce, within};
use handler_egress::{EgressConfig, RunError, run};
use handler_types::egress::{EgressAnswer, EgressRequest};
use std::time::Duration;

#[tokio::test]
async fn a_second_filter_on_the_same_socket_is_refused_and_the_first_lives_on() {
    let filter = Filter::start(|_| {}).await;
    let mut config = EgressConfig::new(filter.control_path());
    config.own_process = false;
    let error = within("the refusal", run(config)).await.unwrap_err();
    assert!(matches!(error, RunError::AlreadyRunning(_)), "{error}");
    filter.control().await;
}

#[tokio::test]
async fn a_filter_that_nobody_needs_ends_and_one_with_a_sandbox_does_not() {
    let mut filter = Filter::start(|config| config.idle_exit = Duration::from_millis(100)).await;
    let mut control = filter.control().await;
    filter.put(enforce(&[]), vec![]).await;
    drop(filter.control().await);
    // Several times the limit pass with a sandbox, then with only a connection.
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(!filter.task.is_finished());
    let sandbox = "s1".to_owned();
    control.ask(&EgressRequest::Remove { sandbox }).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(!filter.task.is_finished());
    drop(control);
    within("the end", &mut filter.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_control_socket_that_was_removed_is_made_again() {
    let filter = Filter::start(|_| {}).await;
    filter.put(enforce(&[]), vec![]).await;
    std::fs::remove_file(filter.control_path()).unwrap();
    within("the socket is back", async {
        while !filter.control_path().exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let list = filter.control().await.ask(&EgressRequest::List).await;
    let sandboxes = vec!["s1".to_owned()];
    assert_eq!(list, EgressAnswer::List { sandboxes });
}

#[tokio::test]
async fn who_tells_the_filter_to_end_need_not_wait_for_the_answer() {
    let mut filter = Filter::start(|_| {}).await;
    let mut control = filter.control().await;
    control.send(&EgressRequest::Shutdown).await;
    drop(control);
    within("the end", &mut filter.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn the_next_filter_has_the_authorities_of_the_last_until_their_sandboxes_are_removed() {
    let mut filter = Filter::start(|_| {}).await;
    let pem = filter.put(enforce(&[]), vec![]).await;
    filter.again().await;
    assert_eq!(filter.put(enforce(&[]), vec![]).await, pem);
    let sandbox = "s1".to_owned();
    let mut control = filter.control().await;
    control.ask(&EgressRequest::Remove { sandbox }).await;
    assert_ne!(filter.put(enforce(&[]), vec![]).await, pem);
}
