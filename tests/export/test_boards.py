"""The simulated boards themselves: what they print, and that instructions are counted rightly."""

import pytest

import boards

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("board", ["m3", "m4f"])
def test_a_board_prints_and_ends(board):
    source = (
        boards.SAY
        + 'static int twice = 21;\nint main(void) { say("here\\n"); say_bits((uint32_t)(twice * 2)); return 0; }\n'
    )
    assert boards.run_on(board, source, {}).split() == ["here", "0000002a"]


@pytest.mark.parametrize("board", ["m3", "m4f"])
@pytest.mark.parametrize("count", [1000, 5000])
def test_a_loop_of_known_length(board, count):
    work = f'__asm__ volatile("mov r3, %0\\n1: subs r3, r3, #1\\nbne 1b" :: "r"({count}u) : "r3", "cc");'
    got = boards.instructions(board, "", work, {})
    assert abs(got - 2 * count) <= 5
