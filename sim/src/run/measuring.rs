//! What agents do: rounds, probes, bursts, controls, and batches on their way to the coordinator.

use super::*;

impl Fleet {
    pub(super) fn round(&mut self, vantage: usize, grid: Grid) {
        let every = self.every(grid);
        self.at(self.now + every, Event::Round { vantage, grid });
        let jitter = every * self.scenery.timing.jitter_permille / 1000;
        let nodes = self.scenery.nodes.len();
        let Some(agent) = self.agents.get_mut(vantage).filter(|_| self.truth.runs(vantage, self.now)) else { return };
        let life = agent.life;
        let mut later = || self.now + agent.between(0, jitter);
        let begun: Vec<(i64, Event)> = match grid {
            Grid::Nodes => (0..nodes)
                .map(|node| {
                    let (purpose, then) = (Purpose::Scheduled, Then::Scheduled);
                    (later(), Event::Probe { vantage, life, subject: Subject::Node(node), purpose, then })
                })
                .collect(),
            Grid::Canaries => [true, false].map(|canary| (later(), Event::Resolve { vantage, life, canary })).into(),
            Grid::Controls => vec![(later(), Event::Controls { vantage, life, purpose: Purpose::Scheduled })],
        };
        for (at, event) in begun {
            self.at(at, event);
        }
    }

    pub(super) fn probe(&mut self, vantage: usize, subject: Subject, purpose: Purpose, then: Then) {
        let Some(agent) = self.agents.get_mut(vantage) else { return };
        let life = agent.life;
        let (outcome, at) = agent.connect(&mut self.truth, &self.scenery, subject, self.now);
        let Some(fact) = Agent::connection(&self.scenery, subject, outcome) else { return };
        let measured = Measured { at, purpose, fact };
        self.at(at, Event::Ended { vantage, life, measured, tried: Some((subject, then)) });
    }

    pub(super) fn resolve(&mut self, vantage: usize, canary: bool) {
        if !canary {
            return self.resolve_host(vantage, Purpose::Scheduled);
        }
        let Some(agent) = self.agents.get_mut(vantage) else { return };
        let life = agent.life;
        let results = [true, false].map(|live| agent.resolve_canary(&mut self.truth, &self.scenery, live, self.now));
        let first = results.iter().filter(|result| works(result.fact.outcome())).map(|result| result.at).min();
        for measured in results {
            self.at(measured.at, Event::Ended { vantage, life, measured, tried: None });
        }
        let Some(begin) = first else { return };
        for which in 0..self.scenery.canary.1.len() {
            let (subject, purpose) = (Subject::Canary(which), Purpose::Scheduled);
            self.at(begin, Event::Probe { vantage, life, subject, purpose, then: Then::Scheduled });
        }
    }

    pub(super) fn resolve_host(&mut self, vantage: usize, purpose: Purpose) {
        let Some(agent) = self.agents.get_mut(vantage) else { return };
        let life = agent.life;
        let (measured, node) = agent.resolve_host(&mut self.truth, &self.scenery, self.record, self.now, purpose);
        let at = measured.at;
        self.at(at, Event::Ended { vantage, life, measured, tried: None });
        if let Some(node) = node {
            let then = if purpose == Purpose::Scheduled { Then::Scheduled } else { Then::Nothing };
            self.at(at, Event::Probe { vantage, life, subject: Subject::Host(node), purpose, then });
        }
    }

    pub(super) fn ended(&mut self, vantage: usize, measured: Measured, tried: Option<(Subject, Then)>) {
        let worked = works(measured.fact.outcome());
        if let Some(agent) = self.agents.get_mut(vantage) {
            agent.keep(measured, tried.map(|(subject, _)| subject));
            if !agent.delivering {
                agent.delivering = true;
                let delay = self.network.between(20, 200);
                self.at(self.now + delay, Event::Deliver { vantage });
            }
        }
        if let Some((subject, then)) = tried {
            self.follow(vantage, subject, then, worked);
        }
    }

    pub(super) fn follow(&mut self, vantage: usize, subject: Subject, then: Then, worked: bool) {
        let gaps = self.scenery.timing.gaps;
        let Some(agent) = self.agents.get_mut(vantage) else { return };
        let life = agent.life;
        match then {
            Then::Scheduled => {
                if agent.starts_burst(subject, worked) {
                    self.bracket(vantage);
                    self.burst(vantage, life, subject, 0);
                }
            }
            Then::Burst(_) if worked => agent.burst_ended(subject, true),
            Then::Burst(step) if step + 1 < gaps.len() => self.burst(vantage, life, subject, step + 1),
            Then::Burst(_) => {
                agent.burst_ended(subject, false);
                self.bracket(vantage);
            }
            Then::Task { left, gap_ms, next_at } => {
                if !worked {
                    self.bracket(vantage);
                }
                if left > 0 {
                    let at = next_at.max(self.now);
                    let then = Then::Task { left: left - 1, gap_ms, next_at: at + gap_ms };
                    self.at(at, Event::Probe { vantage, life, subject, purpose: Purpose::CrossCheck, then });
                }
            }
            Then::Nothing => {
                if !worked {
                    self.bracket(vantage);
                }
            }
        }
    }

    pub(super) fn burst(&mut self, vantage: usize, life: u32, subject: Subject, step: usize) {
        let gap = self.scenery.timing.gaps.get(step).copied().unwrap_or(0);
        let event = Event::Probe { vantage, life, subject, purpose: Purpose::Confirm, then: Then::Burst(step) };
        self.at(self.now + gap, event);
    }

    /// Asks for a round of the controls around a measurement.
    pub(super) fn bracket(&mut self, vantage: usize) {
        if let Some(life) = self.life(vantage) {
            self.at(self.now, Event::Controls { vantage, life, purpose: Purpose::Confirm });
        }
    }

    /// One round runs at a time; what is asked for meanwhile is one more after it.
    pub(super) fn controls(&mut self, vantage: usize, purpose: Purpose) {
        let Some(agent) = self.agents.get_mut(vantage) else { return };
        if agent.controls_running {
            agent.controls_wanted = true;
            return;
        }
        let (life, earliest) = (agent.life, agent.controls_at + CONTROLS_PAUSE_MS);
        agent.controls_running = true;
        if self.now < earliest {
            // Running, from others' point of view.
            agent.controls_wanted = true;
            return self.at(earliest, Event::ControlsOver { vantage, life });
        }
        agent.controls_at = self.now;
        let results = agent.controls(&mut self.truth, &self.scenery, self.now, purpose);
        let over = results.iter().map(|result| result.at).max().unwrap_or(self.now);
        for measured in results {
            self.at(measured.at, Event::Ended { vantage, life, measured, tried: None });
        }
        self.at(over, Event::ControlsOver { vantage, life });
    }

    pub(super) fn controls_over(&mut self, vantage: usize) {
        let Some(agent) = self.agents.get_mut(vantage) else { return };
        agent.controls_running = false;
        if std::mem::take(&mut agent.controls_wanted) {
            self.controls(vantage, Purpose::Confirm);
        }
    }

    pub(super) fn deliver(&mut self, vantage: usize) {
        let clock = self.clock();
        let Some(agent) = self.agents.get_mut(vantage) else { return };
        if !self.truth.linked(&self.scenery, vantage, self.now) {
            let pause = self.network.between(1000, 10_000);
            return self.at(self.now + pause, Event::Deliver { vantage });
        }
        agent.delivering = false;
        let mut news = false;
        for measured in agent.batch() {
            self.observations += 1;
            let age = self.now - measured.at;
            news |= self.coordinator.receive(&self.scenery, vantage, measured, clock, age);
        }
        if news {
            self.wake();
        }
    }
}
