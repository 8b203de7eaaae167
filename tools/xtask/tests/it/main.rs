//! The corpus against its manifest: every program compiles, prints and ends as stated.

#![allow(clippy::unwrap_used)] // A test fails by panicking.

use std::collections::HashSet;
use std::fs;
use std::thread;

use xtask::{Corpus, Exit, Outcome, workspace_root};

#[test]
fn every_program_does_what_the_manifest_says() {
    let corpus = Corpus::load().unwrap();
    for program in corpus.programs() {
        for variant in &program.variants {
            let executable = corpus.build(program, variant).unwrap();
            let outcome = Outcome::of_running(&executable, program).unwrap();
            if let Err(difference) = program.check(&outcome) {
                panic!("{} {}: {difference}", program.name, variant.name);
            }
        }
    }
}

#[test]
fn every_file_belongs_to_a_program() {
    let corpus = Corpus::load().unwrap();
    let mut known: HashSet<String> = ["manifest.json", "README.md", "called.h"]
        .map(String::from)
        .into();
    for program in corpus.programs() {
        known.extend(program.sources.iter().cloned());
        for library in &program.libraries {
            known.extend(library.sources.iter().cloned());
        }
    }
    for entry in fs::read_dir(workspace_root().join("testdata/programs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(known.contains(&name), "{name} belongs to no program");
    }
}

#[test]
fn names_are_unique_and_limits_are_explained() {
    let corpus = Corpus::load().unwrap();
    let readme = fs::read_to_string(workspace_root().join("testdata/programs/README.md")).unwrap();
    let mut names = HashSet::new();
    for program in corpus.programs() {
        assert!(
            names.insert(&program.name),
            "{} is there twice",
            program.name
        );
        let variants: HashSet<_> = program
            .variants
            .iter()
            .map(|variant| &variant.name)
            .collect();
        assert_eq!(variants.len(), program.variants.len(), "{}", program.name);
        assert!(!variants.is_empty(), "{} has no variant", program.name);
        for limit in &program.limits {
            assert!(
                readme.contains(&format!("| `{limit}` |")),
                "{limit} isn't in the README"
            );
        }
    }
}

#[test]
fn a_wrong_output_or_end_is_noticed() {
    let corpus = Corpus::load().unwrap();
    let (program, _) = corpus.find("sort", "O2").unwrap();
    let good = Outcome {
        stdout: format!("{}count by_value 22\n", program.stdout),
        exit: Exit::Status(0),
    };
    program.check(&good).unwrap();
    assert_eq!(program.counted_calls(&good).unwrap()[0].count, 22);

    let other_end = Outcome {
        exit: Exit::Signal(11),
        ..good.clone()
    };
    assert!(program.check(&other_end).is_err());
    let more = Outcome {
        stdout: format!("{}x\n", good.stdout),
        ..good.clone()
    };
    assert!(program.check(&more).is_err());
    let no_count = Outcome {
        stdout: program.stdout.clone(),
        ..good
    };
    assert!(program.check(&no_count).is_err());
}

#[test]
fn threads_that_build_the_same_program_all_get_it() {
    let output = tempfile::tempdir().unwrap();
    let corpus = Corpus::load_into(output.path()).unwrap();
    let (program, variant) = corpus.find("exit_deep", "O0-static").unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let executable = corpus.build(program, variant).unwrap();
                let outcome = Outcome::of_running(&executable, program).unwrap();
                assert_eq!(outcome.exit, Exit::Status(7));
            });
        }
    });
    let built: Vec<_> = fs::read_dir(output.path().join("exit_deep"))
        .unwrap()
        .collect();
    assert_eq!(built.len(), 1, "only the finished folder stays: {built:?}");
}
