//! Writing the host's input to a command.

use super::Process;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::io::unix::AsyncFd;

/// What ends input on a terminal (Ctrl-D), as it has no end of file of its own.
const END_OF_INPUT: &[u8] = &[4];
/// Most bytes of one write.
const CHUNK: usize = 64 * 1024;

/// Writes input as it comes until its end, or until nobody reads; then closes it.
pub(super) async fn feed(process: Rc<Process>, fd: AsyncFd<OwnedFd>) {
    let ended_by_host = tokio::select! {
        biased;
        result = write_all(&process, &fd) => result.is_ok(),
        () = process.wait_exit() => false,
    };
    if ended_by_host && process.tty.get().is_some() {
        let _ = write(&fd, END_OF_INPUT).await;
    }
    drop(fd);
    process.input.borrow_mut().abandon();
    process.input_changed();
}

pub(super) async fn write_all(process: &Process, fd: &AsyncFd<OwnedFd>) -> io::Result<()> {
    loop {
        let chunk = {
            let input = process.input.borrow();
            if input.is_finished() {
                return Ok(());
            }
            let next = input.next();
            next[..next.len().min(CHUNK)].to_vec()
        };
        if chunk.is_empty() {
            // One waiter only, and a permit is kept when none waits.
            process.input_ready.notified().await;
            continue;
        }
        let count = write(fd, &chunk).await?;
        process.input.borrow_mut().advance(count);
        process.input_changed();
        tokio::task::yield_now().await;
    }
}

async fn write(fd: &AsyncFd<OwnedFd>, data: &[u8]) -> io::Result<usize> {
    loop {
        let mut ready = fd.writable().await?;
        match ready.try_io(|fd| Ok(rustix::io::write(fd.get_ref(), data)?)) {
            Ok(Err(error)) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => {}
            Ok(result) => return result,
            Err(_would_block) => {}
        }
    }
}
