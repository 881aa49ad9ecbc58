//! Bytes of the fuzzer as texts, numbers and choices.

/// Reads choices from the front of an input; zeros after its end.
pub struct Choices<'d>(pub &'d [u8]);

impl<'d> Choices<'d> {
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    /// A number below `end`, which is at most 256.
    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    pub fn of<T: Copy>(&mut self, kinds: &[T]) -> T {
        kinds[self.below(kinds.len())]
    }

    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub fn rest(self) -> &'d [u8] {
        self.0
    }
}

/// Every construct on which tokenizers have been seen to part; `tests/adversarial.py` has more of
/// them, and both lists grow by what is found.
#[rustfmt::skip]
pub const TRAPS: &[&str] = &[
    " ", "\t", "\n", "\r", "\x0b", "\x0c", "\u{85}", "\u{a0}", "\u{2003}", "\u{3000}", "\u{200b}",
    "\u{200d}", "\u{feff}", "\0", "\r\n", "\n\n", "  ", "   ", " \n", "\n ", " \r\n ",
    "a", "A", "z", "Z", "s", "S", "ſ", "ı", "ß", "ǅ", "ʰ", "ª", "é", "É", "K", "\u{212a}",
    "'s", "'S", "'ſ", "'ll", "'LL", "'lL", "'re", "'ve", "'d", "'m", "'t", "'", "''", "’s", "'l",
    "'r", "'v", "'ſt", "0", "9", "12", "1234", "Ⅷ", "①", "٣", "²", "½",
    ".", ",", "!", "?", "/", "\\", "-", "_", "(", ")", "[", "{", "<", ">", "|", "#", "@", "$", "^",
    "*", "=", "~", "`", "\"", "//", "!!", "...", "/\n", "!\n\n", "/\r/", "\u{7f}",
    "中", "文字", "。", "ひらがな", "カタカナ", "한국어", "가", "ᄀ", "ᅡ", "д", "Привет", "ö",
    "o\u{308}", "\u{308}", "\u{301}", "\u{323}", "ﬁ", "Å", "🙂", "👩\u{200d}👩\u{200d}👧", "🇩🇪", "👍🏽",
    "\u{1e947}", "𝔘", "\u{e33}", "क्षि", "نص", "\u{898}", "\u{1ac0}", "\u{16d63}", "\u{105d2}\u{307}",
    "\u{10ffff}", "\u{e000}", "\u{ffff}", "\u{7ff}", "\u{800}", "\u{80}",
    "camelCaseWord", "ALLCAPS", "ALLCAPSthen", "中ABCd", "aʰB", "the", " the", " of", "return",
    "\u{2581}", "\u{2581}\u{2581}the", "    ", " self.", "();\n", "<|endoftext|>", "xxxxxxxxxxxxxxx", "abcdefghijklmnop",
];

/// How often the part before is repeated: the lengths at which tables and vectors end.
const REPEATS: [usize; 16] = [1, 2, 3, 6, 7, 8, 13, 14, 15, 16, 30, 31, 32, 62, 63, 64];

/// A text: the input itself, made valid, or a recipe of traps, repetitions and any characters.
pub fn text_of(data: &[u8], max_bytes: usize) -> Box<str> {
    let mut choices = Choices(data);
    let mut text = String::new();
    if choices.byte() & 1 == 0 {
        text.push_str(&String::from_utf8_lossy(choices.rest()));
    } else {
        let mut last = "a";
        while !choices.is_over() && text.len() < max_bytes {
            match choices.byte() {
                byte @ ..0xE0 => {
                    last = TRAPS[usize::from(byte) % TRAPS.len()];
                    text.push_str(last);
                }
                byte @ 0xE0..0xF0 => text.push_str(&last.repeat(REPEATS[usize::from(byte & 15)])),
                _ => {
                    let code = u32::from(choices.byte()) << 16
                        | u32::from(choices.byte()) << 8
                        | u32::from(choices.byte());
                    text.push(char::from_u32(code % 0x11_0000).unwrap_or('\u{d7ff}'));
                }
            }
        }
    }
    let mut end = text.len().min(max_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    // No room after the text: what reads over its end is seen.
    text.into_boxed_str()
}
