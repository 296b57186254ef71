//! The program and the libraries of this process, as far as stacks need them: how to unwind their functions, and the
//! names of these.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::Range,
};

use framehop::{CacheNative, ExplicitModuleSectionInfo, Module, UnwindRegsNative, Unwinder as _, UnwinderNative};
use object::{Object, ObjectSection, ObjectSymbol, ReadCache, SymbolKind};
use podium_runtime::Samples;

use super::signal::Sample;

/// The most frames of a stack, from the innermost one.
const MOST_FRAMES: usize = 64;
/// The most different stacks that are counted: 5 MB of addresses.
const MOST_STACKS: usize = 10_000;
/// The code of guests, which wasmtime has compiled: it belongs to no file.
const GUEST: &str = "[guest]";

/// A file with code that is mapped into the process.
struct Mapped {
    path: String,
    range: Range<u64>,
}

/// The addresses of stacks, the innermost first.
pub(super) struct Stacks {
    unwinder: UnwinderNative<Vec<u8>, framehop::MayAllocateDuringUnwind>,
    cache: CacheNative<framehop::MayAllocateDuringUnwind>,
    files: Vec<Mapped>,
    counts: BTreeMap<Vec<u64>, u64>,
}

impl Stacks {
    /// Reads the files that are mapped into the process; one that cannot be read has no names. Blocks.
    pub(super) fn new() -> Self {
        let mut unwinder = UnwinderNative::new();
        let files = mapped(&fs::read_to_string("/proc/self/maps").unwrap_or_default());
        for Mapped { path, range } in &files {
            if let Some(info) = opened(path, unwind_info) {
                unwinder.add_module(Module::new(path.clone(), range.clone(), range.start, info));
            }
        }
        Self { unwinder, cache: CacheNative::default(), files, counts: BTreeMap::new() }
    }

    /// Counts the stack of a sample.
    pub(super) fn add(&mut self, sample: &Sample) {
        #[cfg(target_arch = "x86_64")]
        let registers = UnwindRegsNative::new(sample.pc, sample.sp, sample.fp);
        #[cfg(target_arch = "aarch64")]
        let registers = UnwindRegsNative::new(sample.lr, sample.sp, sample.fp);
        let mut read = |address| sample.word(address).ok_or(());
        let mut frames = self.unwinder.iter_frames(sample.pc, registers, &mut self.cache, &mut read);
        let mut stack = Vec::new();
        // An error is the end of the copied part of the stack, or of the known functions.
        while let (Ok(Some(frame)), 0..MOST_FRAMES) = (frames.next(), stack.len()) {
            stack.push(frame.address_for_lookup());
        }
        if self.counts.len() >= MOST_STACKS && !self.counts.contains_key(&stack) {
            stack.clear();
        }
        *self.counts.entry(stack).or_default() += 1;
    }

    /// Returns the stacks with names. Blocks.
    pub(super) fn named(&self) -> Samples {
        let addresses: BTreeSet<u64> = self.counts.keys().flatten().copied().collect();
        let mut names = BTreeMap::new();
        for Mapped { path, range } in &self.files {
            let own: Vec<u64> = addresses.range(range.clone()).copied().collect();
            let found = opened(path, |object| Some(named(object, range.start, &own))).unwrap_or_default();
            let file = path.rsplit('/').next().unwrap_or_default();
            names.extend(own.iter().map(|address| (*address, format!("[{file}]"))));
            names.extend(found);
        }
        let mut samples = Samples::default();
        for (stack, count) in &self.counts {
            let mut frames: Vec<&str> =
                stack.iter().map(|address| names.get(address).map_or(GUEST, String::as_str)).collect();
            frames.dedup_by(|inner, outer| *inner == GUEST && *outer == GUEST);
            samples.add(frames.into_iter(), *count);
        }
        samples
    }
}

/// Returns the files of a text as in `/proc/self/maps`, each from the begin of its first part to the end of its last.
fn mapped(maps: &str) -> Vec<Mapped> {
    let mut files: Vec<Mapped> = Vec::new();
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let range = fields.next().and_then(|range| range.split_once('-'));
        let Some((Ok(start), Ok(end))) =
            range.map(|(start, end)| (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16)))
        else {
            continue;
        };
        let Some(path) = fields.nth(4).filter(|path| path.starts_with('/')) else { continue };
        match files.last_mut().filter(|last| last.path == path) {
            Some(last) => last.range.end = end,
            None => files.push(Mapped { path: path.to_owned(), range: start..end }),
        }
    }
    files
}

type File<'data> = object::File<'data, &'data ReadCache<fs::File>>;

fn opened<T>(path: &str, read: impl FnOnce(&File<'_>) -> Option<T>) -> Option<T> {
    let cache = ReadCache::new(fs::File::open(path).ok()?);
    read(&File::parse(&cache).ok()?)
}

fn unwind_info(object: &File<'_>) -> Option<ExplicitModuleSectionInfo<Vec<u8>>> {
    let section = |name| object.section_by_name(name);
    let range = |name| section(name).map(|of| of.address()..of.address().saturating_add(of.size()));
    let data = |name| section(name).and_then(|of| Some(of.data().ok()?.to_vec()));
    Some(ExplicitModuleSectionInfo {
        text_svma: range(".text"),
        got_svma: range(".got"),
        eh_frame_svma: range(".eh_frame"),
        eh_frame: data(".eh_frame"),
        eh_frame_hdr_svma: range(".eh_frame_hdr"),
        eh_frame_hdr: data(".eh_frame_hdr"),
        ..ExplicitModuleSectionInfo::default()
    })
}

/// Returns the names of the functions at these addresses in a file that is mapped at `base`.
fn named(object: &File<'_>, base: u64, addresses: &[u64]) -> BTreeMap<u64, String> {
    let functions = object.symbols().chain(object.dynamic_symbols());
    let functions = functions.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition());
    let mut names = BTreeMap::new();
    for symbol in functions {
        let begin = base.saturating_add(symbol.address());
        let end = begin.saturating_add(symbol.size());
        let first = addresses.partition_point(|address| *address < begin);
        let own = addresses.get(first..).unwrap_or_default().iter().take_while(|address| **address < end);
        for address in own {
            if let Ok(name) = symbol.name() {
                names.insert(*address, name.to_owned());
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_mapped_from_its_first_part_to_its_last() {
        let files = mapped(
            "1000-2000 r--p 00000000 08:01 7 /lib/a.so\n2000-3000 r-xp 00001000 08:01 7 /lib/a.so\n\
             3000-4000 rw-p 00000000 00:00 0 \n5000-6000 r-xp 00000000 08:01 8 /lib/b.so\nrubbish\n\
             7000-8000 r-xp 00000000 00:00 0 [vdso]\n",
        );
        let of: Vec<_> = files.iter().map(|file| (&*file.path, file.range.clone())).collect();
        assert_eq!(of, [("/lib/a.so", 0x1000..0x3000), ("/lib/b.so", 0x5000..0x6000)]);
    }
}
