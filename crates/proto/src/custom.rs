//! A policy or controller from outside this crate, as the value of an axis.

use core::fmt;

/// Something that somebody else wrote. No text stands for it.
#[derive(Debug)]
pub struct Custom<P: ?Sized> {
    /// Tells it from others.
    pub name: &'static str,
    /// Makes it: a policy once for each lane, a controller once for each path.
    pub build: fn(parameter: f64) -> Box<P>,
    /// What `build` is called with.
    pub parameter: f64,
}

impl<P: ?Sized> Custom<P> {
    pub(crate) fn build(self) -> Box<P> {
        (self.build)(self.parameter)
    }
}

impl<P: ?Sized> Clone for Custom<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: ?Sized> Copy for Custom<P> {}

impl<P: ?Sized> PartialEq for Custom<P> {
    /// By name: functions have no identity that could be compared.
    fn eq(&self, other: &Self) -> bool {
        (self.name, self.parameter) == (other.name, other.parameter)
    }
}

impl<P: ?Sized> fmt::Display for Custom<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.parameter)
    }
}
