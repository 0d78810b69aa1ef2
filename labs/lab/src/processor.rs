//! Who used the processor during a measurement: the lab, other programs of this machine, or other guests of
//! its host.
//!
//! [`check`](crate::check) looks before and after each crossing, and the experiments of papers before and
//! after each run. A virtual machine is not told when it does not run. The kernel counts the time that its
//! hypervisor gave to others as stolen (`/proc/stat`, proc_stat(5)). Invariant: shares are relative to the
//! time of all processors and add up to at most 1.

use std::fmt;
use std::time::Duration;

/// Counts of all processors (proc_stat(5)), and of this process (proc_pid_stat(5)).
const MACHINE: &str = "/proc/stat";
const PROCESS: &str = "/proc/self/stat";
/// Field numbers of proc_pid_stat(5): time in user mode, time in the kernel, and the real-time priority.
const UTIME: usize = 14;
const STIME: usize = 15;
const RT_PRIORITY: usize = 40;
/// From this share on, another user of the processor is named. Chosen: with less, hardly one packet in twenty
/// is affected, and the 95th percentile shows that.
const NOTICEABLE: f64 = 0.02;

/// Counts at one time, in ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// All processors, whatever they did.
    total: u64,
    /// Programs, and the kernel's work for them.
    programs: u64,
    /// Time of other guests of the host.
    stolen: u64,
    /// This process.
    lab: u64,
}

/// Shares of the processors between two looks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// This process: both ends and the link.
    pub lab: f64,
    /// Other programs of this machine.
    pub others: f64,
    /// Time that the hypervisor gave to others.
    pub stolen: f64,
}

impl Look {
    /// Looks now; `None` if the system has no such counts.
    pub fn now() -> Option<Self> {
        let read = |path| std::fs::read_to_string(path).ok();
        Self::parse(&read(MACHINE)?, &read(PROCESS)?)
    }

    fn parse(machine: &str, process: &str) -> Option<Self> {
        let all = machine.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are counted as user.
        let ticks: Vec<u64> = all.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        let &[user, nice, system, .., stolen] = &ticks[..] else { return None };
        let lab = process_ticks(process)?;
        (ticks.len() == 8).then(|| Self { total: ticks.iter().sum(), programs: user + nice + system, stolen, lab })
    }

    /// Who had what since `before`; none where no time passed.
    pub fn since(&self, before: &Self) -> Option<Shares> {
        let total = self.total.saturating_sub(before.total);
        let share = |now: u64, before: u64| now.saturating_sub(before) as f64 / total as f64;
        let lab = share(self.lab, before.lab);
        (total > 0).then(|| Shares {
            lab,
            others: (share(self.programs, before.programs) - lab).max(0.0),
            stolen: share(self.stolen, before.stolen),
        })
    }
}

/// Ticks that a process used in programs and in the kernel, from the text of its `stat`.
fn process_ticks(stat: &str) -> Option<u64> {
    let ticks = |number| field(stat, number)?.parse::<u64>().ok();
    Some(ticks(UTIME)? + ticks(STIME)?)
}

/// Time of the processors that a process used, from the text of `/proc/PID/stat`.
pub(crate) fn processor_time(stat: &str) -> Option<Duration> {
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    Some(Duration::from_secs_f64(process_ticks(stat)? as f64 / ticks_per_second as f64))
}

/// Whether this process runs before all that is not of real time, as under `chrt -f 1`; `false` where the
/// system does not say.
pub fn is_real_time() -> bool {
    is_real_time_in(&std::fs::read_to_string(PROCESS).unwrap_or_default())
}

fn is_real_time_in(process: &str) -> bool {
    field(process, RT_PRIORITY).is_some_and(|priority| priority != "0")
}

/// A field of proc_pid_stat(5), by its number there.
fn field(process: &str, number: usize) -> Option<&str> {
    // The second, a name in brackets, may hold anything, blanks and brackets too.
    process.rsplit_once(')')?.1.split_whitespace().nth(number.checked_sub(3)?)
}

impl Shares {
    /// What was not there for the lab.
    pub(crate) fn away(&self) -> f64 {
        self.others + self.stolen
    }
}

impl fmt::Display for Shares {
    /// Who else had the processor, as the end of a sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stolen = format!("the hypervisor gave {:.0} % of the processor to others meanwhile", 100.0 * self.stolen);
        let others = format!("other programs took {:.0} % of the processor", 100.0 * self.others);
        match (self.stolen >= NOTICEABLE, self.others >= NOTICEABLE) {
            (true, true) => write!(f, "{stolen}, and {others}"),
            (true, false) => f.write_str(&stolen),
            (false, true) => write!(f, "{others} meanwhile"),
            (false, false) => f.write_str("nobody else had the processor meanwhile, so that it is the lab"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(machine: [u64; 8], lab: [u64; 2]) -> Option<Look> {
        let machine = machine.map(|ticks| ticks.to_string()).join(" ");
        let machine = format!("cpu  {machine} 7 7\ncpu0 1 2 3 4 5 6 7 8 9 10\n");
        let process = format!("42 (a ) b) S 1 2 3 4 5 6 7 8 9 10 {} {} 13 14\n", lab[0], lab[1]);
        Look::parse(&machine, &process)
    }

    #[test]
    fn time_is_the_labs_other_programs_or_others_of_the_host() {
        let before = look([100, 10, 50, 1_000, 5, 1, 2, 40], [30, 20]).unwrap();
        let after = look([130, 20, 70, 1_100, 5, 1, 10, 72], [50, 25]).unwrap();
        let Shares { lab, others, stolen } = after.since(&before).unwrap();
        assert_eq!((lab, others, stolen), (0.125, 0.175, 0.16));
        assert_eq!(before.since(&before), None);
    }

    #[test]
    fn what_cannot_be_read_is_nothing() {
        let process = "42 (tidewire) S 1 2 3 4 5 6 7 8 9 10 11 12 13\n";
        for machine in ["", "cpu  1 2 3\n", "cpu  1 2 3 4 5 6 seven 8\n", "cpu0 1 2 3 4 5 6 7 8\n"] {
            assert_eq!(Look::parse(machine, process), None, "{machine}");
        }
        let machine = "cpu  1 2 3 4 5 6 7 8\n";
        assert!(Look::parse(machine, process).is_some());
        assert_eq!(Look::parse(machine, "42 (tidewire) S 1 2 3\n"), None);
    }

    #[test]
    fn a_priority_in_real_time_is_seen() {
        // "pid (name) state" and the fields behind, of which the 38th is the priority.
        let process = |priority: u32| format!("7 (a) b) S{} {priority} 1", " 0".repeat(36));
        assert_eq!([0, 1].map(|priority| is_real_time_in(&process(priority))), [false, true]);
        assert!(!is_real_time_in(""));
    }

    #[test]
    fn the_sentence_names_who_it_was() {
        let said = |others, stolen| Shares { lab: 0.2, others, stolen }.to_string();
        assert_eq!(said(0.01, 0.11), "the hypervisor gave 11 % of the processor to others meanwhile");
        assert_eq!(said(0.4, 0.0), "other programs took 40 % of the processor meanwhile");
        assert!(said(0.4, 0.11).contains("gave 11 %") && said(0.4, 0.11).contains("took 40 %"));
        assert!(said(0.0, 0.0).contains("nobody else"));
    }
}
