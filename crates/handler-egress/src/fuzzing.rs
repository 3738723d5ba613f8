//! What the fuzz targets run: any bytes in, and what must hold whatever they are. Behind the feature `fuzzing`; nothing
//! here touches a file, a network or a clock that counts.

mod names;
mod scanning;
mod serving;
mod settings;
mod tls;
mod websocket;

pub use names::{allow_entry, target};
pub use scanning::{codings, scanner};
pub use serving::{http1, http2};
pub use settings::settings;
pub use tls::client_hello;
pub use websocket::websocket;

use crate::settings::Rules;
use crate::target::Target;
use handler_types::egress::{EgressSettings, Injection};
use handler_types::network::{Enforcement, NetworkPolicy};
use std::sync::Arc;

/// Rules under which nothing can be reached, with two secrets: one for [`own`], one for another host.
fn rules() -> Arc<Rules> {
    let injection = |name: &str, phantom: &str, value: &str, host: &str| Injection {
        name: name.to_owned(),
        phantom: phantom.to_owned(),
        value: value.to_owned(),
        hosts: host.parse().into_iter().collect(),
        renews: None,
    };
    let settings = EgressSettings {
        listen: String::new(),
        policy: NetworkPolicy::Filtered {
            allow: Vec::new(),
            enforcement: Enforcement::Enforce,
        },
        injections: vec![
            injection("mine", "ab/phantom-1", "ab/values-99", "a.example:443"),
            injection("other", "phantom-5678", "value\"%2d\\xy", "b.example:443"),
        ],
        label: String::new(),
    };
    let (rules, _) = Rules::new(settings, 1).expect("settings of our own");
    Arc::new(rules)
}

/// The host of the first secret.
fn own() -> Target {
    Target::parse("a.example:443", None).expect("a target of our own")
}

/// Takes a number from the front, and the rest in pieces of as many bytes, at least one.
fn cut(data: &[u8]) -> (&[u8], impl Iterator<Item = &[u8]>) {
    let (step, rest) = data.split_first().unwrap_or((&0, &[]));
    (rest, rest.chunks(usize::from(*step) + 1))
}
