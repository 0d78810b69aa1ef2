//! Addition of counts: the lowest level, which every room may use.

/// Implements `+=` for a structure of counts. It names every field, so that a forgotten one does not compile.
macro_rules! add_counts {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl core::ops::AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                let Self { $($field),* } = other;
                $(self.$field += $field;)*
            }
        }
    };
}
pub(crate) use add_counts;
