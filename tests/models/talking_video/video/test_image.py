"""The caller's image: upright, opaque, whole, in the nearest bucket; and what is refused of it."""

from __future__ import annotations

import contextlib
import struct
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms

from stoker.models.input_image import InvalidImage, opened
from stoker.models.talking_video.limits import VideoLimits
from stoker.models.talking_video.video.image import cut
from stoker.models.talking_video.video.sizes import BUCKETS, Bucket, cover

RED, GREEN, BLUE, GREY = (200, 40, 40), (40, 160, 60), (40, 60, 200), (128, 128, 128)


def quarters(width: int = 96, height: int = 80) -> Image.Image:
    """Red and green above, blue and grey below."""
    image = np.zeros((height, width, 3), np.uint8)
    middle, half = width // 2, height // 2
    image[:half, :middle], image[:half, middle:] = RED, GREEN
    image[half:, :middle], image[half:, middle:] = BLUE, GREY
    return Image.fromarray(image)


def corners(image: Image.Image) -> list[tuple[int, ...]]:
    """Of each quarter the middle: left and right above, left and right below."""
    assert image.mode == "RGB"
    pixels = np.asarray(image)
    height, width = pixels.shape[:2]
    positions = [(y * height // 4, x * width // 4) for y in (1, 3) for x in (1, 3)]
    return [tuple(int(value) for value in pixels[position]) for position in positions]


def near(found: Any, wanted: Any, by: int = 6) -> bool:
    return bool(np.abs(np.asarray(found, int) - np.asarray(wanted, int)).max() <= by)


def saved(folder: Path, image: Image.Image, kind: str = "png", **options: Any) -> Path:
    path = folder / f"image.{kind}"
    image.save(path, **options)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(InvalidImage) as refused:
        opened(path)
    return str(refused.value)


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp"])
def test_each_format_is_read(tmp_path: Path, kind: str) -> None:
    image = opened(saved(tmp_path, quarters(), kind))
    assert image.size == (96, 80)
    assert near(corners(image), [RED, GREEN, BLUE, GREY], by=12)


@pytest.mark.parametrize(
    ("turned", "wanted"),
    [
        (1, [RED, GREEN, BLUE, GREY]),
        (2, [GREEN, RED, GREY, BLUE]),
        (3, [GREY, BLUE, GREEN, RED]),
        (4, [BLUE, GREY, RED, GREEN]),
        (5, [RED, BLUE, GREEN, GREY]),
        (6, [BLUE, RED, GREY, GREEN]),
        (7, [GREY, GREEN, BLUE, RED]),
        (8, [GREEN, GREY, RED, BLUE]),
    ],
)
@pytest.mark.parametrize("kind", ["jpeg", "png", "webp"])
def test_it_is_turned_by_its_exif(tmp_path: Path, kind: str, turned: int, wanted: list[Any]) -> None:
    exif = Image.Exif()
    exif[0x0112] = turned
    image = opened(saved(tmp_path, quarters(), kind, exif=exif))
    assert image.size == ((96, 80) if turned < 5 else (80, 96))
    assert near(corners(image), wanted, by=12)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_an_exif_that_cannot_be_read_turns_nothing(tmp_path: Path) -> None:
    path = saved(tmp_path, quarters(), "jpeg", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    assert near(corners(opened(path)), [RED, GREEN, BLUE, GREY], by=12)


ODD_VALUES = [(0x0100, 2, 2, b"x\0\0\0"), (0x011E, 2, 3, b"up\0\0")]
"""Of EXIF, as tag, type, count and value: a width and a place in words."""


@pytest.mark.parametrize("value", ODD_VALUES)
def test_odd_values_in_an_exif_do_not_keep_it_from_being_turned(
    tmp_path: Path, value: tuple[int, int, int, bytes]
) -> None:
    values = sorted([value, (0x0112, 3, 1, b"\0\6\0\0")])
    entries = b"".join(struct.pack(">HHL4s", *each) for each in values)
    exif = b"Exif\0\0MM\0*\0\0\0\x08" + len(values).to_bytes(2, "big") + entries + bytes(4)
    read = opened(saved(tmp_path, quarters(), "jpeg", exif=exif))
    assert near(corners(read), [BLUE, RED, GREY, GREEN], by=12)


def test_what_is_transparent_is_white(tmp_path: Path) -> None:
    image = quarters().convert("RGBA")
    pixels = np.array(image)
    pixels[:40, :48, 3], pixels[:40, 48:, 3] = 0, 128
    image = opened(saved(tmp_path, Image.fromarray(pixels)))
    half = tuple((value + 255) // 2 for value in GREEN)
    assert near(corners(image), [(255, 255, 255), half, BLUE, GREY])


def test_a_palette_with_a_transparent_colour(tmp_path: Path) -> None:
    image = quarters().quantize(4)
    clear = int(np.asarray(image)[0, 0])
    read = opened(saved(tmp_path, image, transparency=clear))
    assert near(corners(read), [(255, 255, 255), GREEN, BLUE, GREY])


def test_a_palette_without(tmp_path: Path) -> None:
    assert near(corners(opened(saved(tmp_path, quarters().quantize(4)))), [RED, GREEN, BLUE, GREY])


def test_grey_with_alpha(tmp_path: Path) -> None:
    pixels = np.full((64, 64, 2), 100, np.uint8)
    pixels[:32, :, 1], pixels[32:, :, 1] = 0, 255
    read = corners(opened(saved(tmp_path, Image.fromarray(pixels, "LA"))))
    assert near(read, [(255, 255, 255)] * 2 + [(100, 100, 100)] * 2)


@pytest.mark.parametrize("mode", ["L", "1"])
def test_grey_and_black_and_white(tmp_path: Path, mode: str) -> None:
    pixels = np.zeros((64, 64), np.uint8)
    pixels[:32] = 255
    image = Image.fromarray(pixels).convert(mode)
    assert corners(opened(saved(tmp_path, image))) == [(255,) * 3] * 2 + [(0,) * 3] * 2


def test_sixteen_bits_are_scaled_not_cut_off(tmp_path: Path) -> None:
    ramp = np.linspace(0, 65_535, 64 * 64).reshape(64, 64).astype(np.uint16)
    read = np.asarray(opened(saved(tmp_path, Image.fromarray(ramp))))
    assert near(read[..., 0], ramp / 257, by=1)


def test_sixteen_bits_of_colour(tmp_path: Path) -> None:
    """Pillow writes no such file, so it is made here."""
    rows = (b"\0" + struct.pack(">HHH", 65_535, 32_768, 0) * 64) * 64
    (tmp_path / "deep.png").write_bytes(_png(64, 64, rows, depth=16))
    assert near(corners(opened(tmp_path / "deep.png")), [(255, 128, 0)] * 4, by=1)


def test_the_colours_of_a_printer(tmp_path: Path) -> None:
    read = opened(saved(tmp_path, quarters().convert("CMYK"), "jpeg", quality=95))
    assert near(corners(read), [RED, GREEN, BLUE, GREY], by=16)


def display_p3() -> bytes:
    """The colours of most phones: sRGB's profile with the places of other primaries (SMPTE EG 432-1)."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    positions = {
        b"rXYZ": (0.51512, 0.2412, -0.00105),
        b"gXYZ": (0.29198, 0.69225, 0.04189),
        b"bXYZ": (0.1571, 0.06657, 0.78407),
    }
    for entry in range(int.from_bytes(profile[128:132], "big")):
        name, start = struct.unpack_from(">4sI", profile, 132 + 12 * entry)
        if name in positions:
            struct.pack_into(
                ">3i", profile, start + 8, *(round(65_536 * position) for position in positions[name])
            )
    return bytes(profile)


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp"])
def test_the_colours_of_a_phone_are_kept(tmp_path: Path, kind: str) -> None:
    """Its numbers stand for stronger colours than the same of sRGB; grey is grey."""
    image = opened(saved(tmp_path, quarters(), kind, icc_profile=display_p3(), quality=95))
    assert near(corners(image), [(218, 0, 26), (0, 163, 40), (34, 61, 208), GREY], by=8)


def test_the_colours_of_a_phone_beneath_transparency(tmp_path: Path) -> None:
    image = quarters().convert("RGBA")
    image.putalpha(Image.new("L", image.size, 255))
    read = opened(saved(tmp_path, image, icc_profile=display_p3()))
    assert near(corners(read), [(218, 0, 26), (0, 163, 40), (34, 61, 208), GREY], by=8)


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK", "P"])
@pytest.mark.parametrize("profile", [b"none" * 40, display_p3()[:200]])
def test_an_invalid_profile_is_ignored(tmp_path: Path, mode: str, profile: bytes) -> None:
    image = quarters().convert(mode)
    kind = "jpeg" if mode == "CMYK" else "png"
    wanted = corners(opened(saved(tmp_path, image, kind)))
    assert corners(opened(saved(tmp_path, image, kind, icc_profile=profile))) == wanted


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_a_profile_for_images_of_another_kind_is_ignored(tmp_path: Path, mode: str) -> None:
    image = quarters().convert(mode)
    wanted = corners(opened(saved(tmp_path, image, "jpeg")))
    assert corners(opened(saved(tmp_path, image, "jpeg", icc_profile=display_p3()))) == wanted


@pytest.mark.parametrize(("gamma", "wanted"), [(100_000, 186), (45_455, 128), (0, 128)])
def test_the_gamma_of_a_png(tmp_path: Path, gamma: int, wanted: int) -> None:
    rows = (b"\0" + b"\x80" * 3 * 64) * 64
    path = tmp_path / "gamma.png"
    path.write_bytes(_png(64, 64, rows, more=((b"gAMA", gamma.to_bytes(4, "big")),)))
    assert near(corners(opened(path)), [(wanted,) * 3] * 4, by=1)


def test_a_phones_image_with_a_second_image_is_no_animation(tmp_path: Path) -> None:
    """Its depth, or its light parts once more: JPEGs of many phones hold two images."""
    path = tmp_path / "phone.jpg"
    quarters().save(path, "MPO", save_all=True, append_images=[Image.new("RGB", (96, 80))])
    with Image.open(path) as both:
        assert getattr(both, "n_frames", 1) == 2
    assert near(corners(opened(path)), [RED, GREEN, BLUE, GREY], by=12)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (63, 64), (64, 63)])
def test_too_small(tmp_path: Path, width: int, height: int) -> None:
    path = saved(tmp_path, Image.new("RGB", (width, height)))
    assert refusal(path) == f"it has {width} x {height} pixels; each side must have at least 64"


def test_just_large_enough(tmp_path: Path) -> None:
    assert opened(saved(tmp_path, Image.new("RGB", (64, 64)))).size == (64, 64)


@pytest.mark.parametrize(
    ("width", "height"), [(20_000, 20_000), (10_000, 10_000), (5_001, 5_000), (2**31 - 1, 2**31 - 1)]
)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_small_file_of_many_pixels_is_refused_unread(tmp_path: Path, width: int, height: int) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(_png(width, height, bytes(1000)))
    tracemalloc.start()
    why = refusal(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "25 million" in why
    assert peak < 2_000_000


def test_the_largest_image_is_read() -> None:
    assert VideoLimits().image_most == 25_000_000
    image = Image.new("RGB", (5_000, 5_000))
    bucket, pixels = cut(image, "480p", 4)
    assert (bucket, pixels.shape) == (Bucket(640, 640), (160, 160, 3))


@pytest.mark.parametrize("kind", ["webp", "png"])
def test_what_moves_is_refused(tmp_path: Path, kind: str) -> None:
    frames = [Image.new("RGB", (64, 64), colour) for colour in (RED, BLUE)]
    path = tmp_path / f"moves.{kind}"
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=100)
    assert refusal(path) == "it is animated; it must be a single image"


def test_a_gif_is_refused_even_if_it_is_not_animated(tmp_path: Path) -> None:
    assert refusal(saved(tmp_path, quarters(), "gif")) == (
        "it is image/gif; it must be a png, jpeg or webp image"
    )


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp"])
@pytest.mark.parametrize("share", [0.01, 0.3, 0.7, 0.98])
def test_a_part_of_a_file_is_refused(tmp_path: Path, kind: str, share: float) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (96, 96, 3), np.uint8)
    data = saved(tmp_path, Image.fromarray(noise), kind).read_bytes()
    (tmp_path / "part").write_bytes(data[: int(len(data) * share)])
    assert refusal(tmp_path / "part").startswith(("it is not a png, jpeg or webp", "it cannot be decoded"))


@pytest.mark.parametrize("data", [b"", b"hello", b"<svg/>", b"RIFF\0\0\0\0WAVE", b"\x89PNG\r\n\x1a\n"])
def test_what_is_no_image_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "no.png").write_bytes(data)
    assert refusal(tmp_path / "no.png").startswith(("it is", "it cannot be decoded"))


@pytest.mark.parametrize("flipped", range(0, 60))
def test_a_changed_byte_is_read_or_refused_and_nothing_else(tmp_path: Path, flipped: int) -> None:
    kind = ("png", "jpeg", "webp")[flipped % 3]
    data = bytearray(saved(tmp_path, quarters(), kind).read_bytes())
    data[flipped * len(data) // 60] ^= 0xFF
    (tmp_path / "changed").write_bytes(data)
    with contextlib.suppress(InvalidImage):
        assert opened(tmp_path / "changed").mode == "RGB"


@pytest.mark.parametrize("size", BUCKETS)
def test_an_image_of_a_buckets_shape_is_kept_whole(size: str) -> None:
    for bucket in BUCKETS[size]:
        image = quarters(bucket.width // 4, bucket.height // 4)
        chosen, pixels = cut(image, size, 4)
        assert chosen == bucket
        assert np.array_equal(pixels, np.asarray(image))


@pytest.mark.parametrize(("width", "height"), [(390_625, 64), (64, 390_625)])
def test_of_a_long_strip_the_middle_is_kept(width: int, height: int) -> None:
    strip = Image.new("RGB", (width, height), RED)
    middle = (width // 2 - 16, height // 2 - 16, width // 2 + 16, height // 2 + 16)
    strip.paste(BLUE, middle)
    bucket, pixels = cut(strip, "720p")
    assert bucket in (Bucket(448, 2048), Bucket(1920, 512))
    assert pixels.shape == (bucket.height, bucket.width, 3)
    assert near(pixels[bucket.height // 2, bucket.width // 2], BLUE)
    assert near(pixels[0, 0], RED)


STRIP = """
import sys
from pathlib import Path
from PIL import Image
from stoker.models.talking_video.video.image import cut

def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) << 10

strip = Image.new("RGB", (int(sys.argv[1]), int(sys.argv[2])), (200, 40, 40))
before = peak()
cut(strip, "720p")
print(peak() - before)
"""


@pytest.mark.parametrize(("width", "height"), [(390_625, 64), (64, 390_625)])
def test_of_a_long_strip_only_what_is_kept_is_scaled(width: int, height: int) -> None:
    """Whole, it would have half a million pixels each way, and need gigabytes. In a process of its own: this
    one's peak may be some other test's."""
    command = [sys.executable, "-P", "-c", STRIP, str(width), str(height)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    print(f"{int(printed.stdout) >> 20} MiB more than the strip itself")
    assert int(printed.stdout) < 64 << 20


@pytest.mark.parametrize("size", [(96, 80), (600, 100), (100, 601), (333, 101)])
def test_it_is_cut_as_if_it_had_been_scaled_whole(size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    smooth = Image.fromarray(rng.integers(0, 256, (9, 9, 3), np.uint8)).resize(size)
    bucket, pixels = cut(smooth, "480p", 4)
    inside = Bucket(bucket.height // 4, bucket.width // 4)
    position = cover(size[1], size[0], inside)
    whole = np.asarray(smooth.resize((position.width, position.height), Image.Resampling.LANCZOS))
    wanted = whole[position.top :, position.left :][: inside.height, : inside.width]
    assert near(pixels[2:-2, 2:-2], wanted[2:-2, 2:-2], by=2)


def test_the_middle_is_kept() -> None:
    """Red, green and blue thirds, three times as wide as high, for a bucket that is not as wide."""
    thirds = np.zeros((100, 600, 3), np.uint8)
    thirds[:, :200], thirds[:, 200:400], thirds[:, 400:] = RED, GREEN, BLUE
    bucket, pixels = cut(Image.fromarray(thirds), "480p")
    assert bucket == Bucket(320, 1216)
    assert near(pixels[160, [0, 608, -1]], [RED, GREEN, BLUE])
    kept = bucket.width / (600 * bucket.height / 100)
    reds = (np.abs(pixels[160].astype(int) - RED).max(axis=1) < 30).sum()
    assert reds == pytest.approx(bucket.width / kept / 3 - (bucket.width / kept - bucket.width) / 2, abs=8)


def test_limits_can_be_changed() -> None:
    changed = VideoLimits.parse("audio_most_s=60 image_bytes=5000000")
    assert changed == VideoLimits(audio_most_s=60.0, image_bytes=5_000_000)
    assert VideoLimits.parse("") == VideoLimits()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("audio=60", "has no limit 'audio'; its limits are audio_least_s, audio_most_s,"),
        ("image_bytes=5MB", "has 'image_bytes=5MB'; a number above 0 must follow"),
        ("image_bytes", "has 'image_bytes'; a number above 0 must follow"),
        ("audio_most_s=nan", "has 'audio_most_s=nan'; a number above 0 must follow"),
        ("audio_most_s=inf", "has 'audio_most_s=inf'; a number above 0 must follow"),
        ("image_least=0", "has 'image_least=0'; a number above 0 must follow"),
        ("audio_bytes=-1", "has 'audio_bytes=-1'; a number above 0 must follow"),
        ("audio_least_s=0.039", "allows less than 0.04 s of sound, which makes no frame of a video"),
    ],
)
def test_limits_that_are_none_are_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        VideoLimits.parse(text)


def _png(
    width: int, height: int, rows: bytes, depth: int = 8, more: tuple[tuple[bytes, bytes], ...] = ()
) -> bytes:
    """Of the colour type RGB; the rows may be too few. `more`: chunks before them."""
    header = struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, 0)
    parts = ((b"IHDR", header), *more, (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
