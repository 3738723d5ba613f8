//! The device of transparent mode as a plan asks for it.
//!
//! It is made out of the host's `/dev/net/tun` before the root is changed: the node is never seen inside.

use super::step::StepError;
use crate::device::make;
use handler_types::launch::{LaunchPlan, TRANSPARENT_RESOLV};
use handler_types::network::Transparent;
use std::os::fd::OwnedFd;

/// Files of the plan that say who is asked for names.
const NSSWITCH: &str = "/etc/nsswitch.conf";
const RESOLV: &str = "/etc/resolv.conf";

/// Makes the device when the plan asks for it. None without an error: it is not wanted; with one: it is wanted
/// but cannot be had, and the sandbox does without.
pub(super) fn of_plan(plan: &LaunchPlan) -> Result<(Option<OwnedFd>, Option<String>), StepError> {
    if plan.egress_dir.is_none() {
        return Ok((None, None));
    }
    match plan.transparent {
        Transparent::Off => Ok((None, None)),
        Transparent::Required => Ok((Some(make()?), None)),
        Transparent::Auto => match make() {
            Ok(device) => Ok((Some(device), None)),
            Err(error) => Ok((None, Some(error.to_string()))),
        },
    }
}

/// The plan with files in which the stack is the name server.
pub(super) fn with_name_server(plan: &LaunchPlan) -> LaunchPlan {
    let mut plan = plan.clone();
    for file in &mut plan.files {
        match file.target.as_str() {
            NSSWITCH => file.content = file.content.replace("hosts: files\n", "hosts: files dns\n"),
            RESOLV => TRANSPARENT_RESOLV.clone_into(&mut file.content),
            _ => {}
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_server_is_the_stack() {
        let first = TRANSPARENT_RESOLV.lines().next();
        let stack = format!("nameserver {}", handler_netstack::STACK_ADDRESS);
        assert_eq!(first, Some(stack.as_str()));
    }
}
