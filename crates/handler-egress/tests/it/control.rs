//! The control protocol.

use crate::world::{Control, Filter, VALUE, enforce, injection, within};
use handler_types::egress::{
    EGRESS_PROTOCOL, EgressAnswer, EgressEvent, EgressRequest, EgressSettings,
};
use handler_types::network::NetworkPolicy;
use std::os::unix::fs::PermissionsExt;

#[tokio::test]
async fn sandboxes_are_put_listed_and_removed_and_keep_their_authority() {
    let filter = Filter::start(|_| {}).await;
    let first = filter.put_for("s1", enforce(&[]), vec![]).await;
    let other = filter.put_for("s2", enforce(&[]), vec![]).await;
    assert!(first.contains("BEGIN CERTIFICATE") && first != other);
    assert_eq!(
        filter.put_for("s1", NetworkPolicy::Open, vec![]).await,
        first
    );
    let mut control = filter.control().await;
    let list = control.ask(&EgressRequest::List).await;
    let both = vec!["s1".to_owned(), "s2".to_owned()];
    assert_eq!(list, EgressAnswer::List { sandboxes: both });
    for _ in 0..2 {
        let sandbox = "s1".to_owned();
        let answer = control.ask(&EgressRequest::Remove { sandbox }).await;
        assert_eq!(answer, EgressAnswer::Done);
    }
    assert!(!filter.listen_path("s1").exists());
    for path in [filter.listen_path("s2"), filter.control_path()] {
        let mode = std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let again = filter.put_for("s1", enforce(&[]), vec![]).await;
    assert_ne!(again, first, "a new sandbox has a new authority");
}

#[tokio::test]
async fn a_listener_moves_with_its_settings_and_comes_back_when_its_file_was_lost() {
    let filter = Filter::start(|_| {}).await;
    filter.put(enforce(&[]), vec![]).await;
    std::fs::remove_file(filter.listen_path("s1")).unwrap();
    filter.put(enforce(&[]), vec![]).await;
    assert!(filter.listen_path("s1").exists());
    let mut settings = settings(&filter);
    settings.listen = filter.listen_path("moved").to_str().unwrap().to_owned();
    let sandbox = "s1".to_owned();
    let put = EgressRequest::Put { sandbox, settings };
    filter.control().await.ask(&put).await;
    assert!(filter.listen_path("moved").exists());
    assert!(!filter.listen_path("s1").exists());
}

fn settings(filter: &Filter) -> EgressSettings {
    EgressSettings {
        listen: filter.listen_path("s1").to_str().unwrap().to_owned(),
        policy: NetworkPolicy::Open,
        injections: vec![injection(&["api.example:443"])],
        label: String::new(),
    }
}

#[tokio::test]
async fn settings_that_cannot_be_used_change_nothing_and_show_no_value() {
    let filter = Filter::start(|_| {}).await;
    let mut control = filter.control().await;
    let mut bad_length = settings(&filter);
    bad_length.injections[0].phantom.push('x');
    let mut bad_place = settings(&filter);
    bad_place.listen = "/nowhere/at/all.sock".to_owned();
    let mut bad_file = settings(&filter);
    bad_file.listen = filter.dir.path().to_str().unwrap().to_owned();
    for settings in [bad_length, bad_place, bad_file] {
        let sandbox = "s1".to_owned();
        let answer = control.ask(&EgressRequest::Put { sandbox, settings }).await;
        let EgressAnswer::Failed { message } = answer else {
            panic!("{answer:?}");
        };
        assert!(!message.contains(VALUE), "{message}");
    }
    let line = format!("{{\"op\":\"put\",\"sandbox\":\"s1\",\"settings\":\"{VALUE}\"}}\n");
    control.send_raw(line.as_bytes()).await;
    let EgressAnswer::Failed { message } = control.read().await.unwrap() else {
        panic!("accepted");
    };
    assert!(!message.contains(VALUE), "{message}");
    let list = control.ask(&EgressRequest::List).await;
    assert_eq!(list, EgressAnswer::List { sandboxes: vec![] });
}

#[tokio::test]
async fn hello_comes_first_and_another_version_may_only_end_the_filter() {
    let mut filter = Filter::start(|_| {}).await;
    let mut control = Control::connect(&filter.control_path()).await;
    let answer = control.ask(&EgressRequest::List).await;
    assert!(matches!(answer, EgressAnswer::Failed { .. }));
    let protocol = EGRESS_PROTOCOL + 1;
    let answer = control.ask(&EgressRequest::Hello { protocol }).await;
    let EgressAnswer::Hello { protocol, pid, .. } = answer else {
        panic!("{answer:?}");
    };
    assert_eq!((protocol, pid), (EGRESS_PROTOCOL, std::process::id()));
    let answer = control.ask(&EgressRequest::List).await;
    assert!(matches!(answer, EgressAnswer::Failed { .. }));
    let answer = control.ask(&EgressRequest::Shutdown).await;
    assert_eq!(answer, EgressAnswer::Done);
    within("the end", &mut filter.task).await.unwrap().unwrap();
    assert!(!filter.control_path().exists());
}

#[tokio::test]
async fn events_are_replayed_after_a_number_and_then_live() {
    let filter = Filter::start(|_| {}).await;
    filter.put(enforce(&[]), vec![]).await;
    let deny = "CONNECT a.example:1 HTTP/1.1\r\nConnection: close\r\n\r\n";
    filter.talk(deny).await;
    filter.talk(deny).await;
    let mut control = filter.control().await;
    control.send(&EgressRequest::Subscribe { after: 1 }).await;
    let event: EgressEvent = control.read().await.unwrap();
    assert_eq!(event.seq, 2);
    filter.talk(deny).await;
    let event: EgressEvent = control.read().await.unwrap();
    assert_eq!(event.seq, 3);
}
