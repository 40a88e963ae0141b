"""Images that other programs show, though their files are not as they should be."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageCms

from stoker.models.image_repairs import INFLATED, PNG, repaired
from stoker.models.input_image import InvalidImage, opened

Pixels = NDArray[np.uint8]


def scene(seed: int = 0, width: int = 96, height: int = 80) -> Image.Image:
    """Smooth colours with noise in a corner."""
    rng = np.random.default_rng(seed)
    image = Image.fromarray(rng.integers(0, 256, (5, 5, 3), np.uint8)).resize((width, height))
    image.paste(Image.fromarray(rng.integers(0, 256, (20, 20, 3), np.uint8)), (width - 20, height - 20))
    return image


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def seen(folder: Path, data: bytes) -> Pixels:
    path = folder / "image"
    path.write_bytes(data)
    return np.asarray(opened(path))


def refusal(folder: Path, data: bytes) -> str:
    with pytest.raises(InvalidImage) as refused:
        seen(folder, data)
    return str(refused.value)


# PNG


def chunk(name: bytes, body: bytes, damaged: bool = False) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body) ^ damaged)


def with_chunks(data: bytes, *chunks: bytes, behind: bool = False) -> bytes:
    at = len(data) - 12 if behind else len(PNG) + 25
    return data[:at] + b"".join(chunks) + data[at:]


LARGE = zlib.compress(bytes(INFLATED + 1))
BOMB = zlib.compress(bytes(1 << 26))

CHUNKS = {
    "large text": chunk(b"zTXt", b"Comment\0\0" + LARGE),
    "large international text": chunk(b"iTXt", b"Comment\0\1\0\0\0" + LARGE),
    "large text about a turn": chunk(b"zTXt", b"Raw profile type exif\0\0" + LARGE),
    "large text of XMP": chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + LARGE),
    "plain text": chunk(b"tEXt", b"Comment\0" + bytes(INFLATED + 1)),
    "much text": b"".join(
        chunk(b"zTXt", b"%d\0\0" % n + zlib.compress(bytes(INFLATED - 9))) for n in range(70)
    ),
    "large profile": chunk(b"iCCP", b"icc\0\0" + LARGE),
    "profile of a bomb": chunk(b"iCCP", b"icc\0\0" + BOMB),
    "text of a bomb": chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + BOMB),
    "two profiles": chunk(b"iCCP", b"icc\0\0" + zlib.compress(b"none" * 40)) * 2,
    "a wrong sum of text": chunk(b"tEXt", b"Comment\0b", damaged=True),
    "a wrong sum of compressed text": chunk(b"zTXt", b"Comment\0\0" + LARGE, damaged=True),
    "a wrong sum of a time": chunk(b"tIME", bytes(7), damaged=True),
    "a wrong sum of a profile": chunk(b"iCCP", b"icc\0\0" + zlib.compress(b"none" * 40), damaged=True),
    "a wrong sum of an EXIF": chunk(b"eXIf", b"MM\0*\0\0\0\x08", damaged=True),
    "an unknown compression of text": chunk(b"zTXt", b"Comment\0\5zz"),
    "an unknown compression of a profile": chunk(b"iCCP", b"icc\0\5zz"),
    "a profile that is no data": chunk(b"iCCP", b"icc\0\0zzzz"),
    "an empty profile": chunk(b"iCCP", b""),
    "an empty text": chunk(b"iTXt", b""),
    "half a gamma": chunk(b"gAMA", b"\0"),
    "half a size": chunk(b"pHYs", b"\0"),
    "half of the primaries": chunk(b"cHRM", b"\0"),
    "no intent": chunk(b"sRGB", b""),
}
"""None of them changes the picture."""


@pytest.mark.parametrize("what", CHUNKS)
@pytest.mark.parametrize("behind", [False, True])
def test_a_png_with_such_a_chunk_is_the_picture(tmp_path: Path, what: str, behind: bool) -> None:
    data = with_chunks(encoded(scene(), "PNG"), CHUNKS[what], behind=behind)
    assert np.array_equal(seen(tmp_path, data), np.asarray(scene()))


@pytest.mark.parametrize("what", ["profile of a bomb", "text of a bomb"])
def test_of_a_bomb_no_more_is_unpacked_than_is_allowed(what: str) -> None:
    data = with_chunks(encoded(scene(), "PNG"), CHUNKS[what])
    tracemalloc.start()
    repaired(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * INFLATED


def test_a_wrong_sum_of_a_chunk_that_the_picture_needs_is_refused(tmp_path: Path) -> None:
    data = encoded(scene().quantize(8), "PNG")
    at = data.index(b"PLTE")
    length = int.from_bytes(data[at - 4 : at], "big")
    changed = data[: at + 4 + length] + bytes(4) + data[at + 8 + length :]
    assert refusal(tmp_path, changed).startswith("it is not a png")


def test_a_profile_of_just_the_size_is_used(tmp_path: Path) -> None:
    """One that is brighter: linear light, with a tag that nobody reads as filling."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    at = profile.index(b"para")
    profile[at : at + 12] = b"para" + bytes(4) + b"\0\0\0\0"
    profile[at + 12 : at + 16] = struct.pack(">i", 1 << 16)
    plain = seen(tmp_path, encoded(scene(), "PNG"))
    brighter = seen(tmp_path, encoded(scene(), "PNG", icc_profile=bytes(profile)))
    assert brighter.mean() > plain.mean() + 10
    filled = bytes(profile) + bytes(INFLATED - len(profile))
    data = with_chunks(encoded(scene(), "PNG"), chunk(b"iCCP", b"icc\0\0" + zlib.compress(filled)))
    assert np.array_equal(seen(tmp_path, data), brighter)
    more = with_chunks(encoded(scene(), "PNG"), chunk(b"iCCP", b"icc\0\0" + zlib.compress(filled + b"\0")))
    assert np.array_equal(seen(tmp_path, more), plain)


def test_texts_about_a_turn_still_turn(tmp_path: Path) -> None:
    """As ImageMagick and Photoshop write them."""
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\1" + struct.pack(">HHI", 0x0112, 3, 1) + b"\0\6\0\0" + bytes(4)
    raw = b"\nexif\n%8d\n%s\n" % (len(exif), exif.hex().encode())
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/" tiff:Orientation="6"/>'
    turned = np.asarray(scene().transpose(Image.Transpose.ROTATE_270))
    for text in (
        chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(raw)),
        chunk(b"tEXt", b"Raw profile type exif\0" + raw),
        chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp),
        chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + zlib.compress(xmp)),
    ):
        assert np.array_equal(seen(tmp_path, with_chunks(encoded(scene(), "PNG"), text)), turned)


@pytest.mark.parametrize("lost", [1, 4, 8, 12, 16])
def test_a_png_without_its_last_bytes_is_the_picture(tmp_path: Path, lost: int) -> None:
    """Its end chunk, and the sum of the last chunk of pixels."""
    assert np.array_equal(seen(tmp_path, encoded(scene(), "PNG")[:-lost]), np.asarray(scene()))


# JPEG

FORMS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "optimized": {"optimize": True},
    "progressive": {"progressive": True},
    "fine": {"quality": 96, "subsampling": 0},
    "restarts": {"restart_marker_rows": 1},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("filled", [b"", bytes(100)])
def test_a_jpeg_without_its_last_two_bytes_is_the_picture(
    tmp_path: Path, form: str, mode: str, lost: int, filled: bytes
) -> None:
    """Also if what preallocated the file left zeros there."""
    data = encoded(scene().convert(mode), "JPEG", **FORMS[form])
    assert np.array_equal(seen(tmp_path, data[:-lost] + filled), seen(tmp_path, data))


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    seed=st.integers(0, 5),
    form=st.sampled_from([form for form in FORMS if form != "progressive"]),
    lost=st.one_of(st.integers(1, 30), st.integers(1, 3000)),
)
def test_a_part_of_a_jpeg_is_the_picture_or_refused(tmp_path: Path, seed: int, form: str, lost: int) -> None:
    """It is never the picture with grey or noise where bytes are missing."""
    data = encoded(scene(seed), "JPEG", **FORMS[form])
    try:
        part = seen(tmp_path, data[:-lost])
    except InvalidImage:
        assert lost > 2
    else:
        assert np.array_equal(part, seen(tmp_path, data))


@pytest.mark.parametrize("lost", [2, 100])
def test_a_phones_jpeg_whose_second_image_is_cut_is_the_first(tmp_path: Path, lost: int) -> None:
    data = encoded(scene(), "MPO", save_all=True, append_images=[scene(1)])
    assert np.array_equal(seen(tmp_path, data[:-lost]), seen(tmp_path, data))


# WebP


@pytest.mark.parametrize("options", [{"lossless": True}, {"quality": 90}, {"exif": Image.Exif()}])
@pytest.mark.parametrize("more", [1, 8, 1000])
def test_a_webp_whose_length_counts_its_header_is_the_picture(
    tmp_path: Path, options: dict[str, Any], more: int
) -> None:
    data = encoded(scene(), "WEBP", **options)
    length = int.from_bytes(data[4:8], "little")
    changed = data[:4] + (length + more).to_bytes(4, "little") + data[8:]
    assert np.array_equal(seen(tmp_path, changed), seen(tmp_path, data))


@pytest.mark.parametrize("lost", [2, 100])
def test_a_part_of_a_webp_is_refused(tmp_path: Path, lost: int) -> None:
    data = encoded(scene(), "WEBP", lossless=True)
    assert refusal(tmp_path, data[:-lost]).startswith("it cannot be decoded completely")


# All


@pytest.mark.parametrize(
    "exif", [b"Exif\0\0MM\0*", b"Exif\0\0MM", b"Exif\0\0", b"Exif\0\0no TIFF at all", b"zz"]
)
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_an_exif_that_is_none_turns_nothing(tmp_path: Path, kind: str, exif: bytes) -> None:
    plain = seen(tmp_path, encoded(scene(), kind))
    assert np.array_equal(seen(tmp_path, encoded(scene(), kind, exif=exif)), plain)


@given(st.sampled_from([PNG, b"RIFF\0\0\0\0WEBP", b"\xff\xd8\xff", b""]), st.binary(max_size=200))
def test_any_bytes_can_be_repaired(head: bytes, rest: bytes) -> None:
    found = repaired(head + rest)
    assert found.startswith(head[:4])
    assert len(found) <= len(head + rest)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"IHDR", b"IDAT", b"iCCP", b"zTXt", b"iTXt", b"tEXt", b"gAMA", b"quux"]),
            st.sampled_from([b"", b"icc\0\0", b"XML:com.adobe.xmp\0\1\0", b"Raw profile type exif\0"]),
            st.binary(max_size=20),
            st.booleans(),
        ),
        max_size=6,
    )
)
def test_critical_chunks_are_kept_in_their_order(chunks: list[tuple[bytes, bytes, bytes, bool]]) -> None:
    made = [(name, chunk(name, key + body, damaged)) for name, key, body, damaged in chunks]
    found = repaired(PNG + b"".join(each for _, each in made))
    position = 0
    for name, each in made:
        if name[:1].isupper():
            position = found.index(each, position) + len(each)


REFUSED = {
    "image/heic": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(200),
    "image/avif": encoded(scene(), "AVIF"),
    "image/gif": encoded(scene(), "GIF"),
    "image/tiff": encoded(scene(), "TIFF"),
    "image/bmp": encoded(scene(), "BMP"),
    "image/jp2": encoded(scene(), "JPEG2000"),
    "image/svg+xml": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "application/pdf": b"%PDF-1.7\n",
    "text/html": b"<!doctype html><html>Not found</html>",
    "audio/wav": b"RIFF\0\0\0\0WAVEfmt ",
}


@pytest.mark.parametrize("media_type", REFUSED)
def test_what_came_is_named_in_the_refusal(tmp_path: Path, media_type: str) -> None:
    expected = f"it is {media_type}; it must be a png, jpeg or webp image"
    assert refusal(tmp_path, REFUSED[media_type]) == expected
