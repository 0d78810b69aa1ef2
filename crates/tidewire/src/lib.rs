//! Tidewire.
