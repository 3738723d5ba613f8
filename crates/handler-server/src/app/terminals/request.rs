//! What a request for a terminal becomes for the guest.

use super::tmux;
use crate::http::problem::{ApiError, ApiResult};
use handler_terminal::Size;
use handler_types::ProblemCode;
use handler_types::guest::{ProcessSpec, TtySize};
use handler_types::terminal::CreateTerminal;

/// Checks a size.
///
/// # Errors
/// One out of range.
pub(super) fn check_size(size: TtySize) -> ApiResult<()> {
    if (1..=Size::MAX_COLS).contains(&size.cols) && (1..=Size::MAX_ROWS).contains(&size.rows) {
        return Ok(());
    }
    Err(ApiError::new(
        ProblemCode::Invalid,
        format!(
            "size: columns from 1 to {}, rows from 1 to {}",
            Size::MAX_COLS,
            Size::MAX_ROWS
        ),
    ))
}

/// The process of a terminal, by default a login shell, whichever the sandbox has.
///
/// # Errors
/// A request that makes no sense.
pub(super) fn spec(request: CreateTerminal) -> ApiResult<(ProcessSpec, TtySize)> {
    let size = request.size.unwrap_or(TtySize { cols: 80, rows: 24 });
    check_size(size)?;
    let (argv, shell) = program(&request)?;
    let texts = argv.iter().chain(&shell).chain(&request.user);
    let has_nul = |text: &String| text.contains('\0');
    let is_bad_name = |name: &String| name.is_empty() || name.contains('=') || has_nul(name);
    if texts.into_iter().any(has_nul)
        || request
            .env
            .iter()
            .any(|(name, value)| is_bad_name(name) || has_nul(value))
    {
        return Err(ApiError::new(
            ProblemCode::Invalid,
            "argv, shell, user and env cannot hold NUL; names no `=`",
        ));
    }
    let mut env = request.env;
    for (name, value) in [("TERM", "xterm-256color"), ("COLORTERM", "truecolor")] {
        env.entry(name.to_owned())
            .or_insert_with(|| value.to_owned());
    }
    let spec = ProcessSpec {
        key: handler_base::random::hex(12),
        argv,
        shell,
        user: request.user,
        env,
        cwd: request.cwd,
        stdin: true,
        tty: Some(size),
        ..Default::default()
    };
    Ok((spec, size))
}

fn program(request: &CreateTerminal) -> ApiResult<(Vec<String>, Option<String>)> {
    let given = [
        !request.argv.is_empty(),
        request.shell.is_some(),
        request.tmux.is_some(),
    ];
    if given.iter().filter(|given| **given).count() > 1 {
        return Err(ApiError::new(
            ProblemCode::Invalid,
            "give one of argv, shell and tmux",
        ));
    }
    if request.argv.first().is_some_and(String::is_empty) {
        return Err(ApiError::new(
            ProblemCode::Invalid,
            "argv: its first word is the program",
        ));
    }
    if let Some(session) = &request.tmux {
        return Ok((tmux::attach(session)?, None));
    }
    if !request.argv.is_empty() || request.shell.is_some() {
        return Ok((request.argv.clone(), request.shell.clone()));
    }
    let find_shell = "command -v bash >/dev/null 2>&1 && exec bash -l; exec sh -l";
    Ok((
        ["/bin/sh", "-c", find_shell].map(str::to_owned).to_vec(),
        None,
    ))
}

/// The program as people are shown it.
pub(super) fn shown(spec: &ProcessSpec) -> Vec<String> {
    match &spec.shell {
        Some(line) => vec![line.clone()],
        None => spec.argv.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_program_and_a_size_within_range() {
        let (spec, size) = spec_of(CreateTerminal::default()).expect("a shell");
        assert_eq!((size.cols, size.rows), (80, 24));
        assert_eq!(spec.env["TERM"], "xterm-256color");
        let two = CreateTerminal {
            argv: vec!["sh".into()],
            shell: Some("ls".into()),
            ..Default::default()
        };
        assert!(spec_of(two).is_err());
        let size = TtySize {
            cols: 1,
            rows: 60_000,
        };
        let large = CreateTerminal {
            size: Some(size),
            ..Default::default()
        };
        assert!(spec_of(large).is_err());
        let tmux = CreateTerminal {
            tmux: Some("a:b".into()),
            ..Default::default()
        };
        assert!(spec_of(tmux).is_err());
    }

    fn spec_of(request: CreateTerminal) -> ApiResult<(ProcessSpec, TtySize)> {
        spec(request)
    }
}
