//! P2: folders a client names must lie in the session's scope.
//!
//! Paths are compared as text after resolving `.` and `..`: they never reach the agent or the disk, so
//! links cannot matter.

use super::Refusal;
use crate::acp::{RawObject, codes};

/// Most `additionalDirectories` looked at.
const MAX_FOLDERS: usize = 64;

/// Checks `cwd` and every entry of `additionalDirectories`.
///
/// # Errors
/// P2 (-32001) for a folder that is missing, not absolute, or outside.
pub fn check(params: &RawObject, scope: &str) -> Result<(), Refusal> {
    let refuse = |message: String| Refusal::by("P2", codes::OUTSIDE_SCOPE, message);
    let cwd: String = params
        .read("cwd")
        .ok_or_else(|| refuse("cwd must be an absolute path".to_owned()))?;
    let mut folders = vec![cwd];
    if let Some(raw) = params
        .get("additionalDirectories")
        .filter(|raw| raw.get() != "null")
    {
        let more: Vec<String> = serde_json::from_str(raw.get())
            .map_err(|_| refuse("additionalDirectories must be a list of paths".to_owned()))?;
        if more.len() > MAX_FOLDERS {
            return Err(refuse(format!(
                "more than {MAX_FOLDERS} additional directories"
            )));
        }
        folders.extend(more);
    }
    match folders.iter().find(|folder| !is_inside(folder, scope)) {
        None => Ok(()),
        Some(folder) => Err(refuse(format!(
            "{folder:?} is outside the session's folder"
        ))),
    }
}

/// Whether the absolute path `path` is `scope` or lies below it.
#[must_use]
pub fn is_inside(path: &str, scope: &str) -> bool {
    let (Some(path), Some(scope)) = (normalize(path), normalize(scope)) else {
        return false;
    };
    path.len() >= scope.len() && path[..scope.len()] == scope[..]
}

fn normalize(path: &str) -> Option<Vec<&str>> {
    if !path.starts_with('/') || path.contains('\0') {
        return None;
    }
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_in_the_scope_pass() {
        let scope = "/home/dev/project";
        for (params, passes) in [
            (r#"{"cwd":"/home/dev/project"}"#, true),
            (r#"{"cwd":"/home/dev/project/"}"#, true),
            (
                r#"{"cwd":"/home/dev/project/./a/../b","additionalDirectories":null}"#,
                true,
            ),
            (
                r#"{"cwd":"/home/dev//project","additionalDirectories":["/home/dev/project/x"]}"#,
                true,
            ),
            (
                r#"{"cwd":"/home/dev/project","additionalDirectories":[]}"#,
                true,
            ),
            (r"{}", false),
            (r#"{"cwd":null}"#, false),
            (r#"{"cwd":["/home/dev/project"]}"#, false),
            (r#"{"cwd":"project"}"#, false),
            (r#"{"cwd":""}"#, false),
            (r#"{"cwd":"/home/dev/project2"}"#, false),
            (r#"{"cwd":"/home/dev"}"#, false),
            (r#"{"cwd":"/home/dev/project/../other"}"#, false),
            (r#"{"cwd":"/home/dev/project\u0000"}"#, false),
            (
                r#"{"cwd":"/home/dev/project","additionalDirectories":["/etc"]}"#,
                false,
            ),
            (
                r#"{"cwd":"/home/dev/project","additionalDirectories":["/home/dev/project","/home/dev/project/../.."]}"#,
                false,
            ),
            (
                r#"{"cwd":"/home/dev/project","additionalDirectories":"/etc"}"#,
                false,
            ),
            (
                r#"{"cwd":"/home/dev/project","additionalDirectories":[7]}"#,
                false,
            ),
        ] {
            let object = RawObject::parse(params.as_bytes()).expect(params);
            let verdict = check(&object, scope);
            assert_eq!(verdict.is_ok(), passes, "{params}");
            if let Err(refusal) = verdict {
                assert_eq!(
                    (refusal.code, refusal.policy.as_deref()),
                    (-32001, Some("P2"))
                );
            }
        }
    }
}
