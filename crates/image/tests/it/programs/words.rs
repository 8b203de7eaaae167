//! Generics, closures, trait objects and a panic path.
use std::collections::BTreeMap;
use std::fmt::Display;

trait Score {
    fn score(&self) -> usize;
}

struct Word<'a>(&'a str);

impl Score for Word<'_> {
    #[inline(never)]
    fn score(&self) -> usize {
        self.0.bytes().map(usize::from).sum()
    }
}

#[inline(never)]
fn show<T: Display>(value: T) {
    println!("{value}");
}

fn main() {
    let text = std::env::args().next().unwrap_or_default() + " some words and some more";
    let mut counts: BTreeMap<&str, Vec<Box<dyn Score + '_>>> = BTreeMap::new();
    text.split(' ').for_each(|word| counts.entry(word).or_default().push(Box::new(Word(word))));
    show(counts.len());
    show(counts.values().flatten().map(|word| word.score()).max().expect("words"));
}
