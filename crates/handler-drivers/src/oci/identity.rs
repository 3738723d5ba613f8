//! As whom a sandbox runs.
//!
//! | daemon | user inside |
//! |---|---|
//! | an ordinary user | that user's own ids: rootless Podman keeps them (keep-id), Docker is told them |
//! | root | the owner of the project folder, or [`FALLBACK`] when there is none or it belongs to root |
//!
//! Never root: what runs inside has no rights of the host's administrator, whatever the engine is run by.

use std::os::unix::fs::MetadataExt;

/// Ids when the daemon is root and no folder says whose the work is.
pub(super) const FALLBACK: u32 = 1000;

/// User and group of everything in a sandbox, on the host as inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Identity {
    /// Decides for a sandbox with this project folder.
    pub(super) fn decide(scope: Option<&str>) -> Self {
        let own = Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        let owner = scope.and_then(|scope| std::fs::metadata(scope).ok());
        choose(
            own,
            owner.map(|data| Self {
                uid: data.uid(),
                gid: data.gid(),
            }),
        )
    }

    /// Whether files of the sandbox belong to another than the daemon.
    pub(super) fn is_foreign(self) -> bool {
        rustix::process::geteuid().as_raw() != self.uid
    }
}

fn choose(own: Identity, owner: Option<Identity>) -> Identity {
    if own.uid != 0 {
        return own;
    }
    let unprivileged = |id| if id == 0 { FALLBACK } else { id };
    match owner {
        Some(owner) if owner.uid != 0 => Identity {
            uid: owner.uid,
            gid: unprivileged(owner.gid),
        },
        _ => Identity {
            uid: FALLBACK,
            gid: FALLBACK,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_ever_root_inside() {
        let id = |uid, gid| Identity { uid, gid };
        assert_eq!(choose(id(1001, 100), Some(id(5, 5))), id(1001, 100));
        assert_eq!(choose(id(0, 0), Some(id(1001, 100))), id(1001, 100));
        assert_eq!(choose(id(0, 0), Some(id(1001, 0))), id(1001, FALLBACK));
        assert_eq!(choose(id(0, 0), Some(id(0, 0))), id(FALLBACK, FALLBACK));
        assert_eq!(choose(id(0, 0), None), id(FALLBACK, FALLBACK));
    }
}
