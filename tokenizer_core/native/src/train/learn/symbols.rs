//! Symbols and positions as numbers of two, four or eight bytes.

/// Symbols below this are single bytes.
pub const N_BYTES: usize = 256;

/// The widths that a symbol or a position may have.
pub trait Unsigned: Copy + Eq {
    const MAX: usize;
    /// `value`, which fits.
    fn of(value: usize) -> Self;
    fn get(self) -> usize;
}

macro_rules! unsigned {
    ($($width:ty),*) => {$(
        impl Unsigned for $width {
            const MAX: usize = <$width>::MAX as usize;
            #[inline(always)]
            fn of(value: usize) -> Self {
                debug_assert!(value <= <Self as Unsigned>::MAX);
                value as $width
            }
            #[inline(always)]
            fn get(self) -> usize {
                self as usize
            }
        }
    )*};
}
unsigned!(u16, u32, u64);
