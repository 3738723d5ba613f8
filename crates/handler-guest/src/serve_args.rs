//! Command line of `handler-guest serve`, for containers and tests.

use crate::config::GuestConfig;
use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// What `serve` was asked.
#[derive(Debug)]
pub struct ServeArgs {
    /// Where to listen.
    pub socket: PathBuf,
    /// Make the device of transparent mode before listening, and keep no capability.
    pub transparent: bool,
    /// The guest's settings.
    pub config: GuestConfig,
}

/// Why a command line is none.
#[derive(Debug, thiserror::Error)]
pub enum ServeArgsProblem {
    /// An argument nobody knows.
    #[error("unknown argument `{0}`")]
    Unknown(String),
    /// An option without its value, or a value that is none.
    #[error("option `{0}` needs a value of its kind")]
    Value(&'static str),
    /// A needed option is not there.
    #[error("option `{0}` is missing")]
    Missing(&'static str),
}

/// Reads `--socket PATH --workdir DIR [--home DIR] [--egress-socket PATH --egress-port N [--transparent UID:GID]]`.
///
/// # Errors
/// When it is not of that form.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<ServeArgs, ServeArgsProblem> {
    let (mut socket, mut workdir, mut home) = (None, None, None);
    let (mut egress_socket, mut egress_port, mut transparent) = (None, None, None);
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let (name, place) = match argument.to_str() {
            Some("--socket") => ("--socket", &mut socket),
            Some("--workdir") => ("--workdir", &mut workdir),
            Some("--home") => ("--home", &mut home),
            Some("--egress-socket") => ("--egress-socket", &mut egress_socket),
            Some("--egress-port") => ("--egress-port", &mut egress_port),
            Some("--transparent") => ("--transparent", &mut transparent),
            _ => {
                let text = argument.to_string_lossy().into_owned();
                return Err(ServeArgsProblem::Unknown(text));
            }
        };
        *place = Some(arguments.next().ok_or(ServeArgsProblem::Value(name))?);
    }
    let workdir = text(
        "--workdir",
        workdir.ok_or(ServeArgsProblem::Missing("--workdir"))?,
    )?;
    if !Path::new(&workdir).is_absolute() {
        return Err(ServeArgsProblem::Value("--workdir"));
    }
    let egress_port = match egress_port {
        Some(port) => text("--egress-port", port)?
            .parse()
            .map_err(|_| ServeArgsProblem::Value("--egress-port"))?,
        None if egress_socket.is_some() => return Err(ServeArgsProblem::Missing("--egress-port")),
        None => 0,
    };
    let is_transparent = transparent.is_some();
    if is_transparent && egress_socket.is_none() {
        return Err(ServeArgsProblem::Missing("--egress-socket"));
    }
    let (uid, gid) = transparent.map_or_else(own_user, user_of)?;
    Ok(ServeArgs {
        transparent: is_transparent,
        socket: socket.ok_or(ServeArgsProblem::Missing("--socket"))?.into(),
        config: GuestConfig {
            home: home.map_or_else(|| Ok(workdir.clone()), |home| text("--home", home))?,
            workdir,
            env: std::env::vars_os().collect(),
            uid,
            gid,
            egress_socket: egress_socket.map(PathBuf::from),
            egress_port,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        },
    })
}

fn text(name: &'static str, value: OsString) -> Result<String, ServeArgsProblem> {
    value
        .into_string()
        .map_err(|_| ServeArgsProblem::Value(name))
}

fn own_user() -> Result<(u32, u32), ServeArgsProblem> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    Ok((uid.as_raw(), gid.as_raw()))
}

/// `UID:GID`: who the guest is when it listens. Never root.
fn user_of(value: OsString) -> Result<(u32, u32), ServeArgsProblem> {
    let numbers = text("--transparent", value)?;
    let numbers = numbers.split_once(':').and_then(|(uid, gid)| {
        let uid = uid.parse().ok().filter(|uid| *uid != 0)?;
        Some((uid, gid.parse().ok()?))
    });
    numbers.ok_or(ServeArgsProblem::Value("--transparent"))
}

/// Listens at a path that only this user can reach; one left over from an earlier start is replaced.
///
/// # Errors
/// When the system refuses.
pub fn listen(socket: &Path) -> io::Result<UnixListener> {
    use std::os::unix::fs::FileTypeExt;
    if std::fs::symlink_metadata(socket).is_ok_and(|found| found.file_type().is_socket()) {
        std::fs::remove_file(socket)?;
    }
    let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(socket);
    rustix::process::umask(mask);
    listener
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<ServeArgs, ServeArgsProblem> {
        parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn a_command_line_is_read_and_a_wrong_one_refused() {
        let args =
            read("--socket /s --workdir /w --egress-socket /e --egress-port 8080").expect("right");
        assert_eq!(args.config.egress_port, 8080);
        assert_eq!(args.config.home, "/w");
        assert!(!args.transparent);
        let egress = "--socket /s --workdir /w --egress-socket /e --egress-port 8080";
        let args = read(&format!("{egress} --transparent 7:8")).expect("right");
        assert!(args.transparent);
        assert_eq!((args.config.uid, args.config.gid), (7, 8));
        for user in ["0:8", "7", "7:", "x:8"] {
            let read = read(&format!("{egress} --transparent {user}"));
            assert!(read.is_err(), "{user}");
        }
        for wrong in [
            "--socket /s --workdir /w --transparent 7:8",
            "--socket /s",
            "--workdir /w",
            "--socket /s --workdir w",
            "--socket /s --workdir /w --egress-socket /e",
            "--socket /s --workdir /w --egress-port x",
            "--socket /s --workdir /w --more",
            "--socket",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
