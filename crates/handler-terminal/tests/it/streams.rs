//! Random and real streams: however cut, redrawn or put aside, the screen is the same.

use handler_terminal::{Limits, Screen, Size};
use proptest::prelude::*;

const SIZE: Size = Size { cols: 20, rows: 7 };

fn screen(bytes: &[u8]) -> Screen {
    let mut screen = Screen::new(SIZE, Limits::default());
    screen.feed(bytes);
    screen
}

/// All that is seen, and what decides what is seen next.
fn seen(screen: &Screen) -> String {
    let Size { cols, rows } = screen.size();
    let mut out = format!(
        "{cols}x{rows} at {:?} shown {} {:?} alt {} paste {} mouse {} keys {} title {:?}\n",
        screen.cursor(),
        screen.shows_cursor(),
        screen.cursor_shape(),
        screen.is_alternate(),
        screen.wants_bracketed_paste(),
        screen.wants_mouse(),
        screen.has_application_keys(),
        screen.osc().title,
    );
    let blank = Screen::new(SIZE, Limits::default());
    let blank = blank.cell(0, 0).expect("within");
    for row in 0..rows {
        for col in 0..cols {
            let cell = screen.cell(row, col).expect("within");
            if cell != blank {
                out += &format!(
                    "{row},{col} {:?} wide {} half {} {:?} on {:?} {}{}{}{}{}\n",
                    cell.contents(),
                    cell.is_wide(),
                    cell.is_wide_continuation(),
                    cell.fgcolor(),
                    cell.bgcolor(),
                    cell.bold(),
                    cell.dim(),
                    cell.italic(),
                    cell.underline(),
                    cell.inverse(),
                );
            }
        }
    }
    out
}

fn text() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "a",
        "wort",
        "größe",
        "漢字",
        "🎉",
        "👩‍👩‍👧",
        "e\u{301}",
        "❤\u{fe0f}",
        " ",
        "    ",
        "\r\n",
        "\r\n\r\n",
        "a long line that wraps and wraps",
        "\t",
        "\u{8}",
        "\r",
        "—",
        "한국어 텍스트",
        "xxxxxxxxxxxxxxxxxxxx",
    ]);
    words.prop_map(str::to_owned)
}

fn sequence() -> impl Strategy<Value = String> {
    let n = 0u16..12;
    prop_oneof![
        4 => (n.clone(), n.clone()).prop_map(|(r, c)| format!("\x1b[{r};{}H", c * 2)),
        2 => (n.clone(), prop::sample::select(b"ABCDEFGILMPSTXZ@`adef".to_vec()))
            .prop_map(|(n, last)| format!("\x1b[{n}{}", last as char)),
        2 => (0u16..4, prop::sample::select(b"JK".to_vec())).prop_map(|(n, last)| format!("\x1b[{n}{}", last as char)),
        4 => prop::collection::vec(prop::sample::select(vec!["0", "1", "2", "3", "4", "7", "22", "24", "27", "31",
            "39", "44", "49", "95", "103", "38;5;200", "48;2;1;2;3", "38:2::9:8:7", "4:3", "58;2;1;2;3", "9"]), 0..4)
            .prop_map(|codes| format!("\x1b[{}m", codes.join(";"))),
        2 => prop::sample::select(vec!["\x1b7", "\x1b8", "\x1bM", "\x1bE", "\x1b=", "\x1b>", "\x1b[s", "\x1b[u",
            "\x1b(0lqqk\x1b(B", "\x1b)0\x0e", "\x0f", "\x1b(0", "\x1b(B", "\x1b[!p", "\x07", "\x1b[6n", "\x1b[c"])
            .prop_map(str::to_owned),
        2 => (prop::sample::select(vec![1, 7, 25, 47, 1000, 1002, 1003, 1004, 1005, 1006, 1047, 1049, 2004]),
            any::<bool>()).prop_map(|(mode, on)| format!("\x1b[?{mode}{}", if on { 'h' } else { 'l' })),
        1 => (1u16..7, 1u16..8).prop_map(|(top, bottom)| format!("\x1b[{top};{bottom}r")),
        1 => (0u16..7).prop_map(|shape| format!("\x1b[{shape} q")),
        1 => prop::sample::select(vec!["\x1b[4h", "\x1b[4l", "\x1b[>1u", "\x1b[<u", "\x1b[>4;1m", "\x1b[22;2t",
            "\x1b[23;2t"]).prop_map(str::to_owned),
        1 => "[a-zäöü ]{0,12}".prop_map(|title| format!("\x1b]0;{title}\x07")),
        1 => "[a-z]{0,9}".prop_map(|name| format!("\x1b]7;file://h/{name}\x1b\\\x1b]133;A\x07\x1bPq{name}\x1b\\")),
    ]
}

fn stream(length: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![text(), sequence()], 0..length)
        .prop_map(|parts| parts.concat().into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_redraw_and_the_rest_is_as_good_as_all(all in stream(60), at in any::<prop::sample::Index>(), rest in stream(20)) {
        // Cut anywhere, within a character or a sequence too.
        let cut = at.index(all.len() + 1);
        let mut stayed = screen(&all[..cut]);
        let redraw = stayed.redraw(0);
        let mut came = screen(&redraw);
        prop_assert_eq!(seen(&came), seen(&stayed), "redraw {:?}", String::from_utf8_lossy(&redraw));
        // Over a screen that shows something else, too.
        let mut other = screen("\x1b[?1049h\x1b[3;4r\x1b[41mother\x1b[?1000h\x1b[4h\x1b(0\x1b[>1u\x1b]0;never".as_bytes());
        other.feed(&redraw);
        prop_assert_eq!(seen(&other), seen(&stayed), "over another");
        for piece in [&all[cut..], &rest] {
            stayed.feed(piece);
            came.feed(piece);
            prop_assert_eq!(seen(&came), seen(&stayed), "after {:?}", String::from_utf8_lossy(piece));
        }
    }

    #[test]
    fn however_cut_the_screen_is_the_same(all in stream(60), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20)) {
        let whole = screen(&all);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(all.len() + 1)).collect();
        cuts.sort_unstable();
        let mut pieces = screen(b"");
        let mut from = 0;
        for cut in cuts.into_iter().chain([all.len()]) {
            pieces.feed(&all[from..cut]);
            from = cut;
        }
        prop_assert_eq!(seen(&pieces), seen(&whole));
        prop_assert_eq!(pieces.text(1000), whole.text(1000));
        prop_assert_eq!(pieces.osc(), whole.osc());
    }

    #[test]
    fn a_snapshot_comes_back_as_it_was(all in stream(80), rest in stream(20)) {
        let mut before = screen(&all);
        let note = serde_json::json!({"offset": all.len()});
        let bytes = before.snapshot(&note);
        let (mut after, noted) = Screen::restore(&bytes, Limits::default()).expect("whole");
        prop_assert_eq!(noted, note);
        prop_assert_eq!(seen(&after), seen(&before));
        prop_assert_eq!(after.osc(), before.osc());
        // Whether the last line that has left goes on in the first that has not is not kept.
        let joined = |screen: &Screen| screen.text(1000).split_whitespace().collect::<String>();
        prop_assert_eq!(joined(&after), joined(&before));
        before.feed(&rest);
        after.feed(&rest);
        prop_assert_eq!(seen(&after), seen(&before));
    }

    #[test]
    fn no_bytes_at_all_make_it_fail(bytes in prop::collection::vec(prop_oneof![any::<u8>(),
        prop::sample::select(b"\x1b\x1b[[?;;0123456789hlmHJKLMPSTX@rqbuts ]\x07\\Px".to_vec())], 0..400), sizes in
        prop::collection::vec((0u16..40, 0u16..20), 1..4))
    {
        let mut screen = screen(b"");
        for (cols, rows) in sizes {
            screen.feed(&bytes);
            screen.resize(Size { cols, rows });
            let mut other = Screen::new(screen.size(), Limits::default());
            other.feed(&screen.redraw(100));
            prop_assert_eq!(other.rows_text(), screen.rows_text());
        }
    }
}

fn mixed(length: usize) -> Vec<u8> {
    let parts = [
        "plain ascii text ",
        "größe — ",
        "漢字かな ",
        "🎉👩‍👩‍👧 ",
        "\x1b[38;5;9mrot\x1b[m ",
        "e\u{301}x ",
        "\r\n",
    ];
    let mut out = Vec::with_capacity(length + 32);
    for n in 0.. {
        if out.len() >= length {
            break;
        }
        out.extend_from_slice(parts[n * 7 % 11 % parts.len()].as_bytes());
        if n % 13 == 0 {
            out.extend_from_slice(format!("{n}\r\n").as_bytes());
        }
    }
    out
}

/// Every offset of a mebibyte is a cut: once all cuts at once, then cuts of one stride each.
#[test]
fn a_mebibyte_of_mixed_text_cut_at_every_offset_arrives_equal() {
    let all = mixed(1024 * 1024);
    let whole = screen(&all);
    let (text, look) = (whole.text(10_000), seen(&whole));
    for stride in [1, 2, 3, 5, 7, 4093] {
        let mut cut = screen(b"");
        all.chunks(stride).for_each(|piece| cut.feed(piece));
        assert_eq!(seen(&cut), look, "pieces of {stride}");
        assert_eq!(cut.text(10_000), text, "pieces of {stride}");
    }
}

/// One cut at each offset, with a redraw there.
#[test]
fn a_viewer_that_comes_at_any_offset_sees_the_same() {
    let all = mixed(3000);
    let whole = seen(&screen(&all));
    let mut stayed = screen(b"");
    for cut in 0..all.len() {
        let mut came = screen(&stayed.redraw(0));
        came.feed(&all[cut..]);
        assert_eq!(seen(&came), whole, "came at {cut}");
        stayed.feed(&all[cut..=cut]);
    }
}

#[test]
fn scrolled_lines_come_first_and_are_bounded() {
    let limits = Limits {
        lines: 200,
        bytes: 10_000,
    };
    let mut screen = Screen::new(SIZE, limits);
    for n in 0..1000 {
        screen.feed(format!("\x1b[3{}mline {n}\x1b[m\r\n", n % 8).as_bytes());
    }
    let text = screen.text(100_000);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() < 300, "{}", lines.len());
    assert_eq!(lines[lines.len() - 2], "line 999");
    let first: usize = lines[0]
        .strip_prefix("line ")
        .expect("a line")
        .parse()
        .expect("n");
    for (n, line) in lines[..lines.len() - 1].iter().enumerate() {
        assert_eq!(*line, format!("line {}", first + n));
    }
    let mut other = Screen::new(SIZE, Limits::default());
    other.feed(&screen.redraw(50));
    let other_text = other.text(100_000);
    let tail: Vec<&str> = other_text.lines().collect();
    assert_eq!(tail[..], lines[lines.len() - 57..]);
    assert!(
        screen.ansi(5).contains("\x1b[;38;5;"),
        "{:?}",
        screen.ansi(5)
    );
}

#[test]
fn a_full_screen_program_hides_and_gives_back_the_shell() {
    let mut screen = screen(b"$ shell\r\n$ vi");
    let shell = seen(&screen);
    screen.feed(b"\x1b[?1049h\x1b[22;2t\x1b]2;vi\x07\x1b[2J\x1b[H\x1b[7mtext\x1b[m\x1b[5;1H~\x1b[?1h\x1b[?2004h\x1b[2 q");
    let mut came = Screen::new(SIZE, Limits::default());
    came.feed(&screen.redraw(100));
    assert_eq!(seen(&came), seen(&screen));
    assert_eq!(came.rows_text()[4], "~");
    let end = b"\x1b[?1l\x1b[?2004l\x1b[0 q\x1b[23;2t\x1b[?1049l\x1b]2;\x07";
    came.feed(end);
    screen.feed(end);
    assert_eq!(seen(&came), shell);
    assert_eq!(seen(&screen), shell);
}

#[test]
fn a_screen_that_grows_gets_its_lines_back() {
    let mut screen = Screen::new(SIZE, Limits::default());
    for n in 0..40 {
        screen.feed(format!("\r\nline {n}").as_bytes());
    }
    screen.resize(Size { cols: 20, rows: 12 });
    assert_eq!(screen.rows_text()[0], "line 28");
    screen.resize(Size { cols: 30, rows: 4 });
    assert_eq!(screen.rows_text()[0], "line 36");
    assert_eq!(screen.cursor().0, 3);
    assert!(
        screen.text(9).starts_with("line 27\n"),
        "{}",
        screen.text(9)
    );
}

#[test]
fn questions_are_answered_for_whom_nobody_answers() {
    let mut screen = screen(b"ab\x1b[6n\x1b[c\x1b[5n");
    assert_eq!(screen.take_replies(), b"\x1b[1;3R\x1b[?62;22c\x1b[0n");
    assert!(screen.take_replies().is_empty());
    for _ in 0..10_000 {
        screen.feed(b"\x1b[6n");
    }
    assert!(screen.take_replies().len() <= 1024);
}

#[test]
fn damaged_snapshots_are_refused() {
    let bytes = screen(b"text").snapshot(&serde_json::Value::Null);
    assert!(Screen::restore(b"", Limits::default()).is_err());
    assert!(Screen::restore(b"something else", Limits::default()).is_err());
    for cut in 0..bytes.len() {
        assert!(
            Screen::restore(&bytes[..cut], Limits::default()).is_err(),
            "cut at {cut}"
        );
    }
}
