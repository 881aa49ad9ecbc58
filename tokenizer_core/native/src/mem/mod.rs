//! What results and tables are made of: memory, prefetching, and hashing.

pub mod buffer_pool;
pub mod growth;
pub mod hash;
pub mod huge_pages;
pub mod prefetch;
pub mod zeroed;
