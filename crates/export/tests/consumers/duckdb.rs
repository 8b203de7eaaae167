//! DuckDB, through its Python package.

use std::process::Command;

use serde_json::Value;

use crate::{program, stream::Stream, write};

fn query(stream: &Stream, sql: &str) -> Vec<Value> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    write(stream, &path);
    let script = "import duckdb, json, sys
for row in duckdb.sql(sys.argv[1]).fetchall():
    print(json.dumps(row, default=str))";
    let output = Command::new("python3")
        .args(["-c", script, sql])
        .current_dir(dir.path())
        .output()
        .expect("python3 runs");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn types_are_what_they_should_be() {
    let rows = query(&program::late_ties(), "describe from 'a.parquet'");
    let seen: Vec<_> = rows
        .iter()
        .map(|row| format!("{} {}", row[0].as_str().unwrap(), row[1].as_str().unwrap()))
        .collect();
    assert_eq!(
        seen,
        [
            "pid UINTEGER",
            "tid UINTEGER",
            "thread VARCHAR",
            "process VARCHAR",
            "begin_ps UBIGINT",
            "duration_ps UBIGINT",
            "time TIMESTAMPTZ_NS",
            "depth INTEGER",
            "function VARCHAR",
            "mangled_name VARCHAR",
            "module VARCHAR",
            "address UBIGINT",
            "file VARCHAR",
            "line UINTEGER",
            "call_site UBIGINT",
            "instructions UBIGINT",
            "self_instructions UBIGINT",
            "flags VARCHAR",
        ]
    );
}

#[test]
fn sums_by_function_are_those_of_the_slices() {
    for mut stream in [program::random(0x5eed_0041, 20_000), program::odd_names()] {
        let rows = query(
            &stream,
            "select function, count(*), sum(instructions)::ubigint, sum((begin_ps + duration_ps) // 1000 - begin_ps // 1000)::ubigint
             from 'a.parquet' group by function order by function",
        );
        let mut truth = std::collections::BTreeMap::<String, (u64, u64, u64)>::new();
        for slice in stream.slices() {
            let instructions = crate::sums::arg(&slice, "instructions").parse().unwrap();
            let sums = truth.entry(slice.name).or_default();
            crate::sums::add(sums, (1, instructions, slice.dur as u64));
        }
        let seen = rows.iter().map(|row| {
            let number = |index: usize| row[index].as_u64().unwrap();
            let name = row[0].as_str().unwrap().to_owned();
            (name, (number(1), number(2), number(3)))
        });
        assert_eq!(seen.collect::<std::collections::BTreeMap<_, _>>(), truth);
    }
}
