//! Whole exchanges on a plain connection.

use super::*;

fn relay(modes: &[&str], instructions: Option<&str>) -> Relay {
    Relay::new(RelayConfig {
        scope: "/p".to_owned(),
        defaults: SessionDefaults {
            mode_ids: modes.iter().map(ToString::to_string).collect(),
            ..SessionDefaults::default()
        },
        instructions: instructions.map(ToOwned::to_owned),
    })
}

/// What becomes of a client's message: `>` to the agent, `<` back to the client, empty: nothing.
fn client(relay: &mut Relay, text: &str) -> String {
    shown(relay.client(text.as_bytes(), &NetworkPolicy::None))
}

/// The same of an agent's line.
fn agent(relay: &mut Relay, text: &str) -> String {
    shown(relay.agent(text.as_bytes()))
}

fn shown(passed: Option<Passed>) -> String {
    let (sign, bytes) = match passed {
        Some(Passed::Agent(bytes)) => (">", bytes),
        Some(Passed::Client(bytes)) => ("<", bytes),
        None => return String::new(),
    };
    format!("{sign}{}", String::from_utf8(bytes).expect("text"))
}

const NEW: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"session/new","params":{"cwd":"/p","mcpServers":[]}}"#;
const OPENED: &str = r#"{"jsonrpc":"2.0","id":7,"result":{"sessionId":"S","modes":{"currentModeId":"auto","availableModes":[{"id":"ask"},{"id":"auto"}]},"models":{"n":1.50}}}"#;

/// A conversation `S` that is open.
fn opened(instructions: Option<&str>) -> Relay {
    let mut relay = relay(&[], instructions);
    assert!(client(&mut relay, NEW).starts_with('>'));
    assert!(agent(&mut relay, OPENED).starts_with('<'));
    relay
}

#[test]
fn a_new_conversation_is_handed_out_when_its_mode_is_set() {
    let mut relay = relay(&["ask"], None);
    assert_eq!(client(&mut relay, NEW), format!(">{NEW}"));
    assert_eq!(
        agent(&mut relay, OPENED),
        r#">{"jsonrpc":"2.0","id":"handler-set-0","method":"session/set_mode","params":{"sessionId":"S","modeId":"ask"}}"#
    );
    let early = r#"{"id":8,"method":"session/prompt","params":{"sessionId":"S","prompt":[]}}"#;
    assert!(
        client(&mut relay, early).contains("-32602"),
        "not handed out"
    );
    assert_eq!(
        agent(&mut relay, r#"{"id":"handler-set-0","result":{}}"#),
        r#"<{"jsonrpc":"2.0","id":7,"result":{"sessionId":"S","modes":{"currentModeId":"ask","availableModes":[{"id":"ask"},{"id":"auto"}]},"models":{"n":1.50}}}"#
    );
    assert_eq!(client(&mut relay, early), format!(">{early}"));
}

#[test]
fn a_mode_that_cannot_be_set_is_an_error_instead_of_a_conversation() {
    for (modes, answers) in [
        (vec!["other"], vec![OPENED]),
        (
            vec!["ask"],
            vec![
                OPENED,
                r#"{"id":"handler-set-0","error":{"code":1,"message":"no"}}"#,
            ],
        ),
    ] {
        for method in ["new", "load", "resume", "fork"] {
            let mut relay = relay(&modes, None);
            let open = format!(
                r#"{{"id":7,"method":"session/{method}","params":{{"cwd":"/p","sessionId":"S"}}}}"#
            );
            client(&mut relay, &open);
            let mut last = String::new();
            for answer in &answers {
                last = agent(&mut relay, answer);
            }
            assert!(
                last.starts_with('<')
                    && last.contains("-32004")
                    && last.contains(r#""policy":"P7""#),
                "{method}: {last}"
            );
            let prompt =
                r#"{"id":8,"method":"session/prompt","params":{"sessionId":"S","prompt":[]}}"#;
            assert!(client(&mut relay, prompt).contains("-32602"), "{method}");
        }
    }
}

#[test]
fn the_first_prompt_of_a_new_conversation_gets_the_instructions() {
    let prompt = |id: u32| {
        format!(
            r#"{{"id":{id},"method":"session/prompt","params":{{"sessionId":"S","prompt":[{{"type":"text","text":"do"}}]}}}}"#
        )
    };
    let mut relay = opened(Some("be"));
    assert_eq!(
        client(&mut relay, &prompt(8)),
        format!(">{}", prompt(8).replace("do\"", "be\\n\\ndo\""))
    );
    assert_eq!(client(&mut relay, &prompt(9)), format!(">{}", prompt(9)));
    // One that was loaded had its first prompt before.
    let load = r#"{"id":10,"method":"session/load","params":{"cwd":"/p","sessionId":"S"}}"#;
    client(&mut relay, load);
    agent(&mut relay, r#"{"id":10,"result":{}}"#);
    assert_eq!(client(&mut relay, &prompt(11)), format!(">{}", prompt(11)));
}

#[test]
fn only_what_was_asked_is_answered_and_only_once() {
    let mut relay = opened(None);
    assert_eq!(agent(&mut relay, r#"{"id":99,"result":{}}"#), "");
    assert_eq!(
        agent(&mut relay, OPENED),
        "",
        "the second answer to a request"
    );
    assert_eq!(client(&mut relay, r#"{"id":0,"result":{}}"#), "");
    let question = r#"{"id":0,"method":"session/request_permission","params":{"sessionId":"S"}}"#;
    assert_eq!(agent(&mut relay, question), format!("<{question}"));
    let answer = r#"{"id":0,"result":{"outcome":{"outcome":"cancelled"}}}"#;
    assert_eq!(client(&mut relay, answer), format!(">{answer}"));
    assert_eq!(client(&mut relay, answer), "");
    let twice = r#"{"id":"a","method":"_x","params":{}}"#;
    assert_eq!(client(&mut relay, twice), format!(">{twice}"));
    assert!(client(&mut relay, twice).contains("-32600"));
    assert!(client(&mut relay, r#"{"id":"handler-set-9","method":"_x"}"#).contains("-32600"));
}

#[test]
fn what_the_agent_may_not_is_answered_to_the_agent() {
    let mut relay = opened(None);
    for (line, answer) in [
        (r#"{"id":1,"method":"fs/read_text_file"}"#, "-32003"),
        (r#"{"id":1,"method":"terminal/create"}"#, "-32003"),
        (r#"{"id":1,"method":"craft/drainMidTurnQueue"}"#, "-32601"),
    ] {
        let answered = agent(&mut relay, line);
        assert!(
            answered.starts_with('>') && answered.contains(answer),
            "{line}: {answered}"
        );
    }
    for line in [
        r#"{"method":"fs/x"}"#,
        r#"{"method":"$/progress"}"#,
        r#"[{"method":"session/update"}]"#,
        "a word",
    ] {
        assert_eq!(agent(&mut relay, line), "", "{line}");
    }
}

#[test]
fn what_nobody_knows_yet_passes_as_it_is() {
    let mut relay = opened(None);
    for line in [
        r#"{"method":"session/update","params":{"sessionId":"S","update":{"sessionUpdate":"of_tomorrow","x":1.50},"more":[ null ]},"top":{}}"#,
        r#"{"method":"_auth/status_update","params":{}}"#,
        r#"{"id":0,"method":"elicitation/create","params":{"mode":"form"}}"#,
        r#"{"method":"elicitation/complete","params":{}}"#,
        r#"{"method":"$/cancel_request","params":{"requestId":0}}"#,
    ] {
        assert_eq!(agent(&mut relay, line), format!("<{line}"));
    }
    for text in [
        r#"{"id":1,"method":"session/set_mode","params":{"sessionId":"S","modeId":"m","_meta":{"a":1.0}}}"#,
        r#"{"id":2,"method":"_session/steering","params":{"sessionId":"S"}}"#,
        r#"{"id":3,"method":"session/list","params":{"cursor":null}}"#,
        r#"{"method":"session/cancel","params":{"sessionId":"S"}}"#,
    ] {
        assert_eq!(client(&mut relay, text), format!(">{text}"));
    }
    let other = r#"{"id":4,"method":"_session/steering","params":{"sessionId":"T"}}"#;
    assert!(client(&mut relay, other).contains("-32602"));
    assert_eq!(
        client(
            &mut relay,
            r#"{"method":"session/cancel","params":{"sessionId":"T"}}"#
        ),
        ""
    );
}

#[test]
fn a_conversation_that_was_closed_or_deleted_is_not_used_any_more() {
    for method in ["close", "delete"] {
        let mut relay = opened(None);
        let end = format!(r#"{{"id":1,"method":"session/{method}","params":{{"sessionId":"S"}}}}"#);
        assert_eq!(client(&mut relay, &end), format!(">{end}"));
        let prompt = r#"{"id":2,"method":"session/prompt","params":{"sessionId":"S","prompt":[]}}"#;
        assert!(client(&mut relay, prompt).contains("-32602"));
    }
}

#[test]
fn the_agent_says_what_it_can_in_version_one() {
    let mut relay = relay(&[], None);
    client(
        &mut relay,
        r#"{"id":0,"method":"initialize","params":{"protocolVersion":2}}"#,
    );
    let answer = agent(
        &mut relay,
        r#"{"id":0,"result":{"protocolVersion":1,"authMethods":[{"id":"x"}]}}"#,
    );
    assert_eq!(
        answer,
        r#"<{"id":0,"result":{"protocolVersion":1,"authMethods":[]}}"#
    );
    client(&mut relay, r#"{"id":1,"method":"initialize"}"#);
    let answer = agent(&mut relay, r#"{"id":1,"result":{"protocolVersion":2}}"#);
    assert!(answer.contains("version 1"), "{answer}");
}

#[test]
fn what_is_no_message_is_said_so_and_goes_nowhere() {
    let mut relay = opened(None);
    assert!(client(&mut relay, "{").contains("-32700"));
    assert!(client(&mut relay, r#"[{"id":1,"method":"_x"}]"#).contains("-32600"));
}
