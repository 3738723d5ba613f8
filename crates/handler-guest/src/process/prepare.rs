//! From what the host asks to what can be forked: checks, program look-up, environment, pipes or a
//! terminal. Everything that can be refused is refused here, before anything runs.

use super::fork::{CStrings, Prepared};
use super::user::{self, Account};
use crate::config::GuestConfig;
use crate::fail;
use crate::failure::from_errno;
use crate::files::path::decode_absolute;
use handler_types::guest::{GuestError, GuestErrorCode, ProcessSpec, Stream, TtySize};
use rustix::fs::{Access, AtFlags, CWD, FileType, accessat, stat};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Rlimit;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, ptsname, unlockpt};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Longest key, in bytes.
pub(crate) const MAX_KEY: usize = 256;
/// Longest tag, in bytes.
pub(crate) const MAX_TAG: usize = 4096;
/// Most arguments.
const MAX_ARGUMENTS: usize = 16 * 1024;
/// Where programs are looked for when the environment names no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The guest's ends of a child's standard streams.
#[derive(Debug)]
pub(super) struct Ends {
    /// Where input is written; a terminal's is the same file as its output.
    pub(super) input: Option<OwnedFd>,
    /// Where output is read.
    pub(super) outputs: Vec<(Stream, OwnedFd)>,
    /// The terminal.
    pub(super) master: Option<OwnedFd>,
}

/// Checks the parts of a spec that are only remembered.
pub(super) fn check(spec: &ProcessSpec) -> Result<(), GuestError> {
    let invalid = |text: String| Err(fail(GuestErrorCode::Invalid, text));
    match &spec.shell {
        Some(line) if line.is_empty() => return invalid("an empty command line".to_owned()),
        Some(_) if !spec.argv.is_empty() => {
            return invalid("a command line and a program; name one".to_owned());
        }
        Some(_) => {}
        None if spec.argv.first().is_none_or(String::is_empty) => {
            return invalid("no program is named".to_owned());
        }
        None => {}
    }
    if spec.argv.len() > MAX_ARGUMENTS {
        return invalid(format!("more than {MAX_ARGUMENTS} arguments"));
    }
    if spec.key.len() > MAX_KEY || spec.tag.len() > MAX_TAG {
        return invalid(format!(
            "key or tag too long (at most {MAX_KEY} and {MAX_TAG} bytes)"
        ));
    }
    if spec.timeout_ms == Some(0) {
        return invalid("a time limit of 0".to_owned());
    }
    spec.tty.map_or(Ok(()), check_size)
}

/// Checks a terminal's size.
pub(crate) fn check_size(size: TtySize) -> Result<(), GuestError> {
    if (1..=10_000).contains(&size.cols) && (1..=10_000).contains(&size.rows) {
        return Ok(());
    }
    Err(fail(
        GuestErrorCode::Invalid,
        format!("terminal size {}x{} (1 to 10000)", size.cols, size.rows),
    ))
}

/// Makes everything the fork needs. A command line becomes the arguments of the shell found.
pub(super) fn prepare(
    spec: &mut ProcessSpec,
    config: &GuestConfig,
    base: &BTreeMap<OsString, OsString>,
    open_files: Option<Rlimit>,
) -> Result<(Prepared, Ends), GuestError> {
    let folder = match &spec.cwd {
        Some(path) => decode_absolute(path)?,
        None => config.workdir.clone().into_bytes(),
    };
    let account = spec.user.as_deref().map(user::find).transpose()?;
    let env = environment(spec, base, account.as_ref())?;
    if let Some(line) = spec.shell.take() {
        let path = env.get(OsStr::new("PATH"));
        spec.argv = super::shell::command_line(line, account.as_ref(), path)?;
    }
    let program = find_program(&spec.argv[0], env.get(OsStr::new("PATH")), &folder)?;
    let argv = spec
        .argv
        .iter()
        .map(|argument| c_string(argument.as_bytes(), "argument"))
        .collect::<Result<Vec<_>, _>>()?;
    let program = c_string(&program, "program")?;
    let mut shell_argv = vec![c"/bin/sh".to_owned(), program.clone()];
    shell_argv.extend(argv.iter().skip(1).cloned());
    let envp = env
        .iter()
        .map(|(name, value)| c_string(&[name.as_bytes(), value.as_bytes()].join(&b'='), "variable"))
        .collect::<Result<Vec<_>, _>>()?;
    let folder = c_string(&folder, "working folder")?;
    let (child, ends) = match spec.tty {
        Some(size) => open_terminal(size),
        None => open_pipes(spec.stdin),
    }
    .map_err(|errno| from_errno("pipes or terminal of the process", errno))?;
    let [stdin, stdout, stderr] = child;
    let credentials = account
        .map(|account| account.credentials)
        .filter(|wanted| !wanted.are_ours());
    if let (Some(wanted), Some(_)) = (&credentials, &spec.tty) {
        // Programs open their terminal by its name.
        let owner = rustix::fs::Uid::from_raw(wanted.uid);
        let _ = rustix::fs::fchown(&stdin, Some(owner), None);
    }
    let prepared = Prepared {
        program,
        argv: CStrings::new(argv),
        shell_argv: CStrings::new(shell_argv),
        envp: CStrings::new(envp),
        folder,
        stdin,
        stdout,
        stderr,
        terminal: spec.tty.is_some(),
        open_files,
        credentials,
    };
    Ok((prepared, ends))
}

fn environment(
    spec: &ProcessSpec,
    base: &BTreeMap<OsString, OsString>,
    account: Option<&Account>,
) -> Result<BTreeMap<OsString, OsString>, GuestError> {
    let mut env = base.clone();
    for (name, value) in account.into_iter().flat_map(Account::variables) {
        env.insert(name.into(), value);
    }
    if spec.tty.is_some() {
        env.entry("TERM".into())
            .or_insert_with(|| "xterm-256color".into());
    }
    for (name, value) in &spec.env {
        if name.is_empty() || name.contains('=') {
            let message = format!("`{name}` is no name of a variable");
            return Err(fail(GuestErrorCode::Invalid, message));
        }
        env.insert(name.into(), value.into());
    }
    Ok(env)
}

fn c_string(bytes: &[u8], what: &str) -> Result<CString, GuestError> {
    CString::new(bytes)
        .map_err(|_| fail(GuestErrorCode::Invalid, format!("a NUL byte in the {what}")))
}

/// Looks a program up as a shell does. A name with a slash is left to `execve`.
pub(super) fn find_program(
    name: &str,
    path: Option<&OsString>,
    folder: &[u8],
) -> Result<Vec<u8>, GuestError> {
    if name.contains('/') {
        return Ok(name.as_bytes().to_vec());
    }
    let path = path.map_or(DEFAULT_PATH.as_bytes(), |path| path.as_bytes());
    let mut denied = false;
    for part in path.split(|byte| *byte == b':') {
        let mut candidate = Vec::with_capacity(part.len() + name.len() + 1);
        if part.first() != Some(&b'/') {
            candidate.extend_from_slice(folder);
            candidate.push(b'/');
        }
        if !part.is_empty() {
            candidate.extend_from_slice(part);
            candidate.push(b'/');
        }
        candidate.extend_from_slice(name.as_bytes());
        let candidate = OsString::from_vec(candidate);
        let is_file = stat(&candidate)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        if !is_file {
            continue;
        }
        if accessat(CWD, &candidate, Access::EXEC_OK, AtFlags::EACCESS).is_ok() {
            return Ok(candidate.into_vec());
        }
        denied = true;
    }
    Err(if denied {
        fail(
            GuestErrorCode::Denied,
            format!("`{name}` may not be executed"),
        )
    } else {
        fail(
            GuestErrorCode::NotFound,
            format!("`{name}` was not found in PATH"),
        )
    })
}

type Streams = ([OwnedFd; 3], Ends);

fn open_pipes(input: bool) -> rustix::io::Result<Streams> {
    let (stdin, to_stdin) = pipe_with(PipeFlags::CLOEXEC)?;
    let (from_stdout, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
    let (from_stderr, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
    let ends = Ends {
        // Without input the write end is closed at once: the child reads an empty file.
        input: input.then_some(to_stdin),
        outputs: vec![(Stream::Stdout, from_stdout), (Stream::Stderr, from_stderr)],
        master: None,
    };
    Ok(([stdin, stdout, stderr], ends))
}

fn open_terminal(size: TtySize) -> rustix::io::Result<Streams> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    unlockpt(&master)?;
    set_size(&master, size)?;
    let slave = match ioctl_tiocgptpeer(&master, flags) {
        Ok(slave) => slave,
        // Kernels and sandboxes without that call: by name.
        Err(_) => rustix::fs::open(
            ptsname(&master, Vec::new())?.as_c_str(),
            rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )?,
    };
    let child = [slave.try_clone_fd()?, slave.try_clone_fd()?, slave];
    let ends = Ends {
        input: Some(master.try_clone_fd()?),
        outputs: vec![(Stream::Pty, master.try_clone_fd()?)],
        master: Some(master),
    };
    Ok((child, ends))
}

/// Sets a terminal's size; the kernel tells the programs on it.
pub(super) fn set_size(master: impl AsFd, size: TtySize) -> rustix::io::Result<()> {
    let size = rustix::termios::Winsize {
        ws_row: size.rows,
        ws_col: size.cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(master, size)
}

/// Duplicates above 2, as [`Prepared`] wants it.
trait CloneFd {
    fn try_clone_fd(&self) -> rustix::io::Result<OwnedFd>;
}

impl CloneFd for OwnedFd {
    fn try_clone_fd(&self) -> rustix::io::Result<OwnedFd> {
        rustix::io::fcntl_dupfd_cloexec(self, 3)
    }
}
