//! Everyday work on files, inside and outside in turns, and the ratio of the two.
//!
//! The scratch directory lies where temporary files do: name a disk by `TMPDIR`.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use callgate::{Session, Stdio};
use serde_json::json;

use crate::failure::BenchFailure;
use crate::figures::median;
use crate::sessions::BenchOpener;

/// Works to measure, and how slow each may be. Each script runs in a fresh directory `$1`, and finds `$2`, which
/// [`PREPARE`] has filled.
const WORK: &[(&str, f64, &str)] = &[
    ("read: grep -r through 2,000 files", 1.1, "for n in 1 2 3 4 5; do grep -r nothing \"$2/tree\"; done; true"),
    ("tar x of 20,000 files", 2.0, "tar xf \"$2/many.tar\" -C \"$1\""),
    ("the same in target/", 1.1, "mkdir \"$1/target\" && tar xf \"$2/many.tar\" -C \"$1/target\""),
    ("the same in TMPDIR", 1.1, "[ \"$TMPDIR\" ] || TMPDIR=$1; d=$(mktemp -d) && tar xf \"$2/many.tar\" -C \"$d\""),
    ("git clone of 2,000 files", 2.0, "git clone -q --no-hardlinks \"$2/tree\" \"$1/clone\""),
    (
        "git commit of 2,000 files",
        2.0,
        "cp -r \"$2/tree\" \"$1/c\" && cd \"$1/c\" && rm -rf .git && git init -q && git add . && git -c user.name=a -c user.email=b commit -qm c",
    ),
    ("make -j2 of 60 C files", 1.1, "cp \"$2\"/c/* \"$1\" && make -s -j2 -C \"$1\""),
    ("cargo build of 8 crates", 1.1, "cp -r \"$2/rust\" \"$1/r\" && cd \"$1/r\" && cargo build -q --offline"),
    (
        "npm install of 2,000 files",
        1.1,
        "cd \"$1\" && echo '{}' > package.json && npm install --offline --no-audit --no-fund --silent --cache \"$1/.cache\" \"$2/package.tgz\"",
    ),
    (
        "pip install of a wheel",
        1.1,
        "p=$(python3 -c 'import sys; print(sys.executable)') && \"$p\" -m pip install -q --no-index --no-deps --disable-pip-version-check --root-user-action=ignore --target \"$1/site\" \"$2/many-1-py3-none-any.whl\"",
    ),
];

const PREPARE: &str = r#"set -e; cd "$2"
mkdir tree many c rust package
for d in $(seq 40); do mkdir tree/$d; for f in $(seq 50); do echo "text of $d and $f" > tree/$d/$f; done; done
for d in $(seq 200); do mkdir many/$d; for f in $(seq 100); do echo $f > many/$d/$f; done; done
tar cf many.tar many
(cd tree && git init -q && git add . && git -c user.name=a -c user.email=b commit -qm tree)
printf 'o=$(patsubst %%.c,%%.o,$(wildcard *.c))\nall: $(o)\n' > c/Makefile
for n in $(seq 60); do printf '#include <stdio.h>\n#include <stdlib.h>\nint f%d(void){return printf("%%d",%d);}\n' $n $n > c/$n.c; done
printf '[workspace]\nresolver = "2"\nmembers = ["c1","c2","c3","c4","c5","c6","c7","c8"]\n' > rust/Cargo.toml
for n in 1 2 3 4 5 6 7 8; do mkdir -p rust/c$n/src; printf '[package]\nname = "c%d"\nversion = "0.1.0"\nedition = "2021"\n' $n > rust/c$n/Cargo.toml
  for f in $(seq 200); do echo "pub fn f$f(x: Vec<String>) -> usize { x.iter().map(|s| s.len() + $f).sum() }"; done > rust/c$n/src/lib.rs; done
cp -r tree package/files; rm -rf package/files/.git; echo '{"name":"many","version":"1.0.0"}' > package/package.json; tar czf package.tgz package
python3 - <<'END'
import zipfile
with zipfile.ZipFile('many-1-py3-none-any.whl', 'w') as z:
    for n in range(1000): z.writestr('many/m%d.py' % n, 'x = %d\n' % n)
    z.writestr('many-1.dist-info/METADATA', 'Metadata-Version: 2.1\nName: many\nVersion: 1\n')
    z.writestr('many-1.dist-info/WHEEL', 'Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
    z.writestr('many-1.dist-info/RECORD', '')
END
"#;

/// Measures, and prints a line for each.
pub(crate) async fn measure(opener: &BenchOpener<'_>, runs: u32, as_json: bool) -> Result<(), BenchFailure> {
    // What calls leave to end by itself comes back here.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let top = opener.scratch.path().to_owned();
    let (material, place) = (top.join("material"), top.join("place"));
    let made = std::fs::create_dir(&material).and_then(|()| std::fs::create_dir(&place));
    made.map_err(BenchFailure::io("make directories to work in"))?;
    let words = |script: &str, place: &Path| -> Vec<OsString> {
        vec!["/bin/sh".into(), "-c".into(), script.into(), "sh".into(), place.into(), material.clone().into()]
    };
    outside(&words(PREPARE, &place))
        .ok_or_else(|| BenchFailure::of("work on files", "the material could not be made"))?;
    let session = opener.open().await?;
    let mut rows = Vec::new();
    for (which, (name, most, script)) in WORK.iter().enumerate() {
        let (mut ins, mut outs) = (Vec::new(), Vec::new());
        for round in 0..=runs {
            for confined in if round % 2 == 0 { [true, false] } else { [false, true] } {
                // Nothing is removed meanwhile: ext4 passes by the numbers of what was removed of late, one by one.
                let fresh = place.join(format!("{which}-{round}-{confined}"));
                std::fs::create_dir(&fresh).map_err(BenchFailure::io("make a directory to work in"))?;
                rustix::fs::sync();
                let words = words(script, &fresh);
                let took = if confined { inside(&session, &words).await? } else { outside(&words) };
                let kept = if confined { &mut ins } else { &mut outs };
                // The first round warms up.
                kept.extend(took.filter(|_| round > 0).map(|took| took.as_secs_f64()));
            }
        }
        let (ins, outs) = (median(ins), median(outs));
        if as_json {
            rows.push(
                json!({ "name": name, "inside_s": ins, "outside_s": outs, "ratio": ins / outs, "at_most": most }),
            );
        } else {
            let line = format!("{name:<36} {ins:>7.3} s inside {outs:>7.3} s outside {:>6.2} × (≤ {most})", ins / outs);
            writeln!(std::io::stdout(), "{line}").map_err(BenchFailure::io("print it"))?;
        }
    }
    if as_json {
        writeln!(std::io::stdout(), "{}", json!({ "files": rows })).map_err(BenchFailure::io("print it"))?;
    }
    Ok(())
}

async fn inside(session: &Session, words: &[OsString]) -> Result<Option<Duration>, BenchFailure> {
    let stdio = Stdio::null().map_err(BenchFailure::io("open /dev/null"))?;
    let started = Instant::now();
    let program = session.spawn(words, stdio).await?;
    let end = program.wait().await?;
    Ok((end.code == Some(0)).then(|| started.elapsed()))
}

/// `None` for what does not work here.
fn outside(words: &[OsString]) -> Option<Duration> {
    let [program, arguments @ ..] = words else { return None };
    let null = std::process::Stdio::null;
    let started = Instant::now();
    let mut command = std::process::Command::new(program);
    let ended =
        command.args(arguments).env_remove("TMPDIR").stdin(null()).stdout(null()).stderr(null()).status().ok()?;
    ended.success().then(|| started.elapsed())
}
