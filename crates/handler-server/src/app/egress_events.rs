//! The filter's last decisions per sandbox and per agent, in memory, and their way onto the event stream.

use handler_types::egress::{AgentEgressEvent, EgressEvent};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Events kept per sandbox, and per agent.
const KEPT: usize = 500;

/// The last decisions.
#[derive(Debug, Default)]
pub struct EgressEvents {
    sandboxes: Mutex<HashMap<String, VecDeque<EgressEvent>>>,
    agents: Mutex<HashMap<String, VecDeque<AgentEgressEvent>>>,
}

impl EgressEvents {
    /// Keeps one, also for the agent whose sandbox it was; one told twice (after the filter's link came back) is kept
    /// once.
    pub fn add(&self, event: EgressEvent, agent: Option<&String>) {
        let of_agent = AgentEgressEvent::of(&event);
        if !self.add_to_sandbox(event) {
            return;
        }
        let (Some(agent), Some(event)) = (agent, of_agent) else {
            return;
        };
        let mut all = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        let list = all.entry(agent.clone()).or_default();
        if list.len() == KEPT {
            list.pop_front();
        }
        list.push_back(event);
    }

    /// Says whether it was not there.
    fn add_to_sandbox(&self, event: EgressEvent) -> bool {
        // A short section without waiting; a panic elsewhere leaves whole events.
        let mut all = self
            .sandboxes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let list = all.entry(event.sandbox.clone()).or_default();
        if list
            .iter()
            .rev()
            .take(KEPT)
            .any(|e| e.seq == event.seq && e.t == event.t)
        {
            return false;
        }
        if list.len() == KEPT {
            list.pop_front();
        }
        list.push_back(event);
        true
    }

    /// Of an agent's sandboxes, those that are gone included, oldest first.
    #[must_use]
    pub fn of_agent(&self, agent: &str) -> Vec<AgentEgressEvent> {
        let all = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(agent)
            .map(|list| list.iter().cloned().collect())
            .unwrap_or_default()
    }

    /// Forgets an agent.
    pub fn forget_agent(&self, agent: &str) {
        let mut all = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(agent);
    }

    /// Of one sandbox, oldest first.
    #[must_use]
    pub fn of(&self, sandbox: &str) -> Vec<EgressEvent> {
        let all = self
            .sandboxes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.get(sandbox)
            .map(|list| list.iter().cloned().collect())
            .unwrap_or_default()
    }

    /// Forgets a sandbox.
    pub fn forget(&self, sandbox: &str) {
        self.sandboxes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(sandbox);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler_types::egress::EgressDecision;

    fn event(seq: u64, decision: &str) -> EgressEvent {
        serde_json::from_value(serde_json::json!({
            "seq": seq, "t": seq, "sandbox": format!("sb{}", seq % 2), "decision": decision, "host": "a.example:443",
        }))
        .expect("an event")
    }

    #[test]
    fn an_agents_events_outlive_its_sandboxes_once_each_and_are_the_last_ones() {
        let all = EgressEvents::default();
        let agent = "a_1".to_owned();
        for seq in 1..=600 {
            all.add(event(seq, "denied"), Some(&agent));
        }
        all.add(event(600, "denied"), Some(&agent));
        all.add(event(601, "ended"), Some(&agent));
        all.add(event(602, "mismatch"), Some(&agent));
        all.add(event(603, "allowed"), None);
        all.forget("sb0");
        all.forget("sb1");
        let kept = all.of_agent(&agent);
        assert_eq!((kept.len(), kept[0].t, kept[499].t), (500, 102, 602));
        assert!(kept.iter().all(|e| e.decision == EgressDecision::Denied));
        assert_eq!(kept[0].connection, "sb0");
        all.forget_agent(&agent);
        assert!(all.of_agent(&agent).is_empty());
    }
}
