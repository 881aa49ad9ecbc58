//! Training: counting pre-tokens, and learning merges from the counts.

pub mod count;
pub mod learn;
