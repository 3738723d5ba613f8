//! Requests over the control socket.

use crate::settings::Rules;
use handler_types::egress::EgressRequest;

/// Whatever is asked, no text about it shows a value; settings that are taken keep what they promise.
pub fn settings(data: &[u8]) {
    let Ok(request) = serde_json::from_slice::<EgressRequest>(data) else {
        return;
    };
    let EgressRequest::Put { settings, .. } = request else {
        return;
    };
    let told: Vec<String> = settings
        .injections
        .iter()
        .map(|one| one.name.clone())
        .collect();
    let values: Vec<String> = settings
        .injections
        .iter()
        .map(|one| one.value.clone())
        .collect();
    let label = settings.label.clone();
    let text = match Rules::new(settings, 1) {
        Err(error) => error.to_string(),
        Ok((rules, _)) => {
            for secret in &rules.secrets {
                assert_eq!(secret.phantom.len(), secret.value.len());
                assert!(secret.value.bytes().all(|byte| byte.is_ascii_graphic()));
            }
            let secrets: Vec<String> = rules.secrets.iter().map(|one| format!("{one:?}")).collect();
            secrets.concat()
        }
    };
    for value in values.iter().filter(|value| value.len() >= 8) {
        // Names are shown, and a value may be part of one.
        let is_told = told
            .iter()
            .chain([&label])
            .any(|name| name.contains(value.as_str()));
        let is_ours = "injection phantom value must be characters printable ASCII without space"
            .contains(value.as_str());
        assert!(
            is_told || is_ours || !text.contains(value.as_str()),
            "{text}"
        );
    }
}
