//! Samples over time in bounded memory: where there would be too many, every second one is dropped and the
//! interval doubles.
//!
//! Flows of TCP sample their windows, networks the queues of their links. Invariant: there are at most
//! [`MOST_SAMPLES`] samples, however long a run lasts.

use core::time::Duration;

use tidewire_proto::Time;

/// Samples that are kept. Chosen: a figure shows no more.
pub const MOST_SAMPLES: usize = 1_024;

/// Samples of one quantity; see the module.
#[derive(Clone, Debug)]
pub struct Series<T> {
    every: Duration,
    next: Time,
    samples: Vec<T>,
}

impl<T> Series<T> {
    /// No samples yet. They will be at least `every` apart.
    pub fn new(every: Duration) -> Self {
        Self { every, next: Time::ZERO, samples: Vec::new() }
    }

    /// When the next sample is due.
    pub fn next(&self) -> Time {
        self.next
    }

    /// Adds a sample if it is due.
    pub fn note(&mut self, now: Time, sample: impl FnOnce() -> T) {
        if now < self.next {
            return;
        }
        if self.samples.len() == MOST_SAMPLES {
            let mut index = 0;
            self.samples.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.every *= 2;
        }
        self.samples.push(sample());
        self.next = now + self.every;
    }

    /// The samples in their order.
    pub fn samples(&self) -> &[T] {
        &self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_thinned_out_and_cover_the_whole_time() {
        let mut series = Series::new(Duration::from_millis(10));
        for ms in 0..100_000 {
            series.note(Time::from_millis(ms), || ms);
        }
        let samples = series.samples();
        assert!(samples.len() > MOST_SAMPLES / 2 && samples.len() <= MOST_SAMPLES);
        assert!(samples[0] == 0 && samples[samples.len() - 1] > 99_000);
        assert!(samples.windows(2).all(|pair| pair[1] - pair[0] >= 10));
    }
}
