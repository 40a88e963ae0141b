"""The caller's sound: every format, any rate, one loudness, and the number of frames to the last."""

from __future__ import annotations

import contextlib
import re
import struct
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile

from stoker.models.talking_video.audio.normalization import QUIET, InvalidAudio, NormalizedAudio, normalized
from stoker.models.talking_video.audio.recording import opened, recorded, sounding
from stoker.models.talking_video.limits import VideoLimits
from stoker.models.talking_video.video.video_file import VideoFile
from tests.media_files import (
    FORMATS,
    Sound,
    clicks,
    lag,
    loudness,
    read_sound,
    tone,
    video_file_without_sound,
    with_gap,
    with_lengths,
    write_sound,
)

RATES = {
    "wav": (8_000, 44_100, 192_000),
    "mp3": (8_000, 44_100),
    "flac": (8_000, 44_100, 192_000),
    "ogg": (8_000, 48_000),
    "m4a": (8_000, 44_100),
    "aac": (8_000, 44_100),
    "aiff": (8_000, 44_100, 192_000),
    "webm": (8_000, 48_000),
    "mkv": (8_000, 44_100),
}
"""That each format knows."""


@pytest.fixture(params=[(kind, rate) for kind, rates in RATES.items() for rate in rates], ids=str)
def form(request: pytest.FixtureRequest) -> tuple[str, int]:
    pair: tuple[str, int] = request.param
    return pair


def noise(samples: int, seed: int = 0) -> Sound:
    return np.random.default_rng(seed).normal(0, 0.2, (1, samples)).clip(-1, 1).astype(np.float32)


def decoded(path: Path, limits: VideoLimits | None = None) -> NormalizedAudio:
    folder = path.parent / f"{path.name}.scratch"
    folder.mkdir(exist_ok=True)
    return normalized(path, folder, limits or VideoLimits())


def refusal(path: Path, limits: VideoLimits | None = None) -> str:
    with pytest.raises(InvalidAudio) as refused:
        decoded(path, limits)
    return str(refused.value)


@pytest.mark.parametrize("channels", [1, 2])
def test_every_format_at_every_rate_is_normalized_to_one_loudness(
    tmp_path: Path, form: tuple[str, int], channels: int
) -> None:
    kind, rate = form
    sound = np.repeat(tone(round(1.3 * rate), rate, gain=0.05), channels, axis=0)
    decoded_audio = decoded(write_sound(tmp_path / f"voice.{kind}", sound, rate))
    filled = 2048 / rate if kind in ("aac", "mkv") else 0.0  # packets, of which the file does not tell
    assert 32 <= decoded_audio.frames <= 32 + 25 * filled
    assert decoded_audio.seconds == pytest.approx(1.3, abs=0.01 + filled)
    assert len(decoded_audio.samples.values) / 16_000 == pytest.approx(
        1.3, abs=0.11 + filled
    )  # an encoder fills its packet
    assert loudness(decoded_audio.samples.values, 16_000) == pytest.approx(-23.0, abs=0.2)


@pytest.mark.parametrize("gain", [0.01, 0.2, 1.0])
def test_whispered_or_shouted_it_is_as_loud(tmp_path: Path, gain: float) -> None:
    decoded_audio = decoded(write_sound(tmp_path / "voice.wav", clicks(32_000, 16_000) * gain, 16_000))
    assert loudness(decoded_audio.samples.values, 16_000) == pytest.approx(-23.0, abs=0.2)


def test_decoded_audio_equals_the_source(tmp_path: Path) -> None:
    wanted = clicks(8_000, 16_000)[0]
    written = np.repeat(wanted, 3)[None]
    decoded_audio = decoded(write_sound(tmp_path / "voice.flac", written, 48_000))
    found = np.asarray(decoded_audio.samples.values)
    assert lag(found, wanted) == 0
    assert np.corrcoef(found, wanted)[0, 1] > 0.75


def test_the_level_for_the_encoder_is_that_of_the_samples(tmp_path: Path) -> None:
    decoded_audio = decoded(
        write_sound(tmp_path / "voice.wav", tone(16_000, 16_000) + np.float32(0.1), 16_000)
    )
    values = np.asarray(decoded_audio.samples.values)
    assert decoded_audio.samples.mean == pytest.approx(values.mean(), abs=1e-4)
    assert decoded_audio.samples.deviation == pytest.approx(values.std(), rel=1e-2)


def test_silence_stays_silent(tmp_path: Path) -> None:
    decoded_audio = decoded(write_sound(tmp_path / "voice.wav", np.zeros((2, 48_000), np.float32), 48_000))
    assert (decoded_audio.frames, decoded_audio.samples.mean, decoded_audio.samples.deviation) == (
        25,
        0.0,
        QUIET,
    )
    assert not decoded_audio.samples.values.any()


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 22_050, 44_100, 48_000])
@pytest.mark.parametrize("samples", [-1, 0, 1])
@pytest.mark.parametrize("frames", [6, 7, 25, 33])
def test_the_number_of_frames_is_exact(tmp_path: Path, rate: int, samples: int, frames: int) -> None:
    """A sample before, at and after the end of a frame; 11,025 samples are no whole number of them."""
    length = frames * rate // 25 + samples
    decoded_audio = decoded(write_sound(tmp_path / "voice.wav", np.zeros((1, length), np.float32), rate))
    assert decoded_audio.frames == length * 25 // rate


@pytest.mark.parametrize("kind", ["flac", "mp3", "ogg", "m4a", "aiff", "webm"])
@pytest.mark.parametrize("seconds", [0.2, 0.4, 1.0, 1.48])
def test_what_an_encoder_adds_is_not_counted(tmp_path: Path, kind: str, seconds: float) -> None:
    path = write_sound(tmp_path / f"voice.{kind}", tone(round(seconds * 48_000), 48_000), 48_000)
    assert decoded(path).frames == round(seconds * 25)


def test_a_wrong_extension_with_good_bytes_is_decoded(tmp_path: Path) -> None:
    path = write_sound(tmp_path / "voice.wav", tone(16_000, 16_000), 16_000, kind="mp3")
    assert decoded(path).frames == 25


@pytest.mark.parametrize("written", [0, 0x7FFF_F000, 0x7FFF_FF00, 0x8000_0000, 0xFFFF_FFFF])
def test_a_wave_file_that_was_written_to_a_pipe_is_decoded(tmp_path: Path, written: int) -> None:
    """Its writer could not go back to say how long it is: SoX, arecord, GStreamer, FFmpeg."""
    data = bytearray(write_sound(tmp_path / "voice.wav", tone(16_000, 16_000), 16_000).read_bytes())
    position = data.index(b"data")
    data[position + 4 : position + 8] = data[4:8] = written.to_bytes(4, "little")
    (tmp_path / "piped.wav").write_bytes(data)
    assert decoded(tmp_path / "piped.wav").frames == 25


def wave_of(body: bytes, kind: int, bits: int, wide: int, rate: int = 16_000, before: bytes = b"") -> bytes:
    """A WAV of one channel; `kind` 1 is for integers, 3 for floats. `before`: chunks before the sound."""
    form = struct.pack("<HHIIHH", kind, 1, rate, rate * wide, wide, bits)
    chunks = b"fmt " + struct.pack("<I", len(form)) + form + before
    chunks += b"data" + struct.pack("<I", len(body)) + body
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


LATIN = b"Caf\xe9\0"


def test_a_title_that_is_no_utf8_is_not_the_sounds_fault(tmp_path: Path) -> None:
    """Of a WAV from Windows, a tagger that lies about its characters, an M4A of an old telephone."""
    title = b"INFOINAM" + struct.pack("<I", len(LATIN) + 1) + LATIN + b"\0"
    info = b"LIST" + struct.pack("<I", len(title)) + title
    body = (tone(16_000, 16_000)[0] * 32_767).astype("<i2").tobytes()
    (tmp_path / "voice.wav").write_bytes(wave_of(body, kind=1, bits=16, wide=2, before=info))
    mp3 = write_sound(tmp_path / "bare.mp3", tone(16_000, 16_000), 16_000, id3v2_version="0").read_bytes()
    tag = b"ID3\3\0\0\0\0\0\x10TIT2" + struct.pack(">IH", 6, 0) + b"\3" + LATIN
    (tmp_path / "voice.mp3").write_bytes(tag + mp3)
    for name in ("voice.wav", "voice.mp3"):
        assert decoded(tmp_path / name).frames == 25
        with opened(tmp_path / name) as opened_file:
            assert opened_file.metadata["title"].startswith("Caf\ufffd")


def test_a_chunk_name_in_a_comment_is_no_chunk(tmp_path: Path) -> None:
    data = write_sound(tmp_path / "voice.wav", tone(16_000, 16_000), 16_000).read_bytes()
    comment = b"LIST" + (16).to_bytes(4, "little") + b"my data" + b"\xef" * 9
    (tmp_path / "comment.wav").write_bytes(data[:12] + comment + data[12:])
    assert decoded(tmp_path / "comment.wav").frames == 25


def test_an_mp3_whose_length_is_only_guessed_is_not_taken_for_cut_off(tmp_path: Path) -> None:
    """FFmpeg guesses by the bit rate of the first frame: here a tenth of that of the second half."""
    bare = {"write_xing": "0", "id3v2_version": "0"}
    low = write_sound(tmp_path / "low.mp3", noise(48_000), 48_000, bit_rate=32_000, **bare)
    high = write_sound(tmp_path / "high.mp3", noise(48_000), 48_000, bit_rate=320_000, **bare)
    path = tmp_path / "voice.mp3"
    path.write_bytes(low.read_bytes() + high.read_bytes())
    with av.open(str(path)) as guessed:
        assert guessed.duration is not None
        assert guessed.duration / av.time_base > 4
    assert decoded(path).seconds == pytest.approx(2.0, abs=0.2)


def test_two_concatenated_mp3s_are_decoded(tmp_path: Path) -> None:
    """A podcast with what comes before it: there is a tag in the middle, and one at the end."""
    first, second = (
        write_sound(tmp_path / f"{n}.mp3", clicks(48_000, 48_000, 0.2 + 0.1 * n), 48_000, write_xing="0")
        for n in range(2)
    )
    end = b"LYRICSBEGIN" + b"la " * 2000 + b"006011LYRICS200"
    path = tmp_path / "voice.mp3"
    path.write_bytes(first.read_bytes() + second.read_bytes() + end)
    decoded_audio = decoded(path)
    assert decoded_audio.seconds == pytest.approx(2.0, abs=0.2)
    begun = VideoFile(tmp_path, path, 64, 64, decoded_audio.frames)
    begun.add(np.zeros((decoded_audio.frames, 64, 64, 3), np.uint8))
    video_file, _ = begun.finish()
    (shown,), rate = read_sound(video_file)
    assert abs(lag(shown[::3], np.asarray(decoded_audio.samples.values))) <= 1
    assert rate == 48_000


@pytest.mark.parametrize("frames", [0, 10, 5_000])
def test_an_mp3_whose_header_miscounts_its_frames_is_decoded(tmp_path: Path, frames: int) -> None:
    """Its bytes are all there."""
    data = bytearray(write_sound(tmp_path / "whole.mp3", noise(48_000), 48_000).read_bytes())
    position = max(data.find(b"Xing"), data.find(b"Info"))
    assert data[position + 7] & 3 == 3
    data[position + 8 : position + 12] = frames.to_bytes(4, "big")
    (tmp_path / "voice.mp3").write_bytes(data)
    assert decoded(tmp_path / "voice.mp3").seconds == pytest.approx(1.0, abs=0.06)


def test_an_mp3_whose_header_counts_frames_only_is_held_to_them(tmp_path: Path) -> None:
    data = bytearray(write_sound(tmp_path / "whole.mp3", noise(48_000), 48_000).read_bytes())
    position = max(data.find(b"Xing"), data.find(b"Info"))
    data[position + 7] &= ~2
    data[position + 12 :] = data[position + 16 :]
    whole = tmp_path / "frames.mp3"
    whole.write_bytes(data)
    assert decoded(whole).seconds == pytest.approx(1.0, abs=0.06)
    whole.write_bytes(data[: len(data) // 2])
    assert "cut off" in refusal(whole)


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind not in ("aac", "mkv")])
def test_as_long_as_it_may_be_and_not_a_frame_longer(tmp_path: Path, kind: str) -> None:
    """What an encoder adds to fill its last packet does not make it too long, where the file tells of it."""
    path = write_sound(tmp_path / f"voice.{kind}", tone(48_000, 48_000), 48_000)
    assert decoded(path, VideoLimits(audio_most_s=1.0)).frames == 25
    assert (
        refusal(path, VideoLimits(audio_most_s=0.99))
        == "it has more than 0.99 s; it must have 0.2 s to 0.99 s"
    )


@pytest.mark.parametrize("seconds", [0.05, 0.19])
def test_too_short(tmp_path: Path, seconds: float) -> None:
    path = write_sound(tmp_path / "voice.wav", tone(round(seconds * 16_000), 16_000), 16_000)
    assert refusal(path) == f"it has {seconds:.2f} s; it must have 0.2 s to 10 minutes"


def test_too_long_is_found_before_all_of_it_is_decoded(tmp_path: Path) -> None:
    path = write_sound(tmp_path / "voice.wav", tone(32_000, 16_000), 16_000)
    assert refusal(path, VideoLimits(audio_most_s=1.0)).startswith(
        "it has more than 1 s; it must have 0.2 s to 1 s"
    )
    assert (tmp_path / "voice.wav.scratch" / "audio.f32").stat().st_size < 4 * 20_000
    assert decoded(path, VideoLimits(audio_most_s=2.0)).frames == 50


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind != "aac"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9])
def test_a_part_of_a_file_is_refused(tmp_path: Path, kind: str, share: float) -> None:
    """But not of AAC, which declares no length."""
    whole = write_sound(tmp_path / f"whole.{kind}", noise(60_000), 48_000)
    data = whole.read_bytes()
    path = tmp_path / f"part.{kind}"
    path.write_bytes(data[: int(len(data) * share)])
    why = refusal(path)
    assert "cut off" in why or "not a readable" in why
    assert decoded(whole).frames == 31


def test_an_m4a_that_begins_with_its_index_and_was_cut_is_refused(tmp_path: Path) -> None:
    data = write_sound(tmp_path / "fast.m4a", noise(96_000), 48_000, movflags="faststart").read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")
    (tmp_path / "part.m4a").write_bytes(data[: len(data) // 2])
    assert "cut off" in refusal(tmp_path / "part.m4a")


BAD = {
    "nothing": b"",
    "text": b"hello\n" * 500,
    "a page": b"<!doctype html><html>Not found</html>",
    "an image": b"\x89PNG\r\n\x1a\n" + bytes(200),
    "noise": np.random.default_rng(3).bytes(20_000),
    "half a header": b"RIFF\x24\x08\x00\x00WAVEfmt ",
    "a list of sounds": b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\ngood.wav\n#EXT-X-ENDLIST\n",
    "a list of files": b"ffconcat version 1.0\nfile good.wav\n",
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_sound_is_refused(tmp_path: Path, what: str) -> None:
    """A list beside a good file, too: FFmpeg would read the file that it names."""
    write_sound(tmp_path / "good.wav", tone(16_000, 16_000), 16_000)
    (tmp_path / "bad").write_bytes(BAD[what])
    why = refusal(tmp_path / "bad")
    assert why.startswith(
        ("it is not a readable wav, mp3, flac", "it holds", "it is text/", "it is image/png")
    )


def test_a_video_file_without_sound_is_refused(tmp_path: Path) -> None:
    assert refusal(video_file_without_sound(tmp_path / "silent.mp4")) == "there is no sound in it"


def test_of_a_video_file_that_is_longer_than_its_sound_the_sound_counts(tmp_path: Path) -> None:
    silent = video_file_without_sound(tmp_path / "silent.mp4", frames=75)
    written = write_sound(tmp_path / "voice.m4a", tone(48_000, 48_000), 48_000)
    path = tmp_path / "talking.mp4"
    with (
        av.open(str(silent)) as video_file,
        av.open(str(written)) as decoded_audio,
        av.open(str(path), "w") as out,
    ):
        tracks = [
            (source, out.add_stream_from_template(source.streams[0]))
            for source in (video_file, decoded_audio)
        ]
        for source, track in tracks:
            for packet in source.demux(0):
                if packet.dts is not None:
                    packet.stream = track
                    out.mux(packet)
    with av.open(str(path)) as both:
        assert both.duration == 3 * av.time_base
    assert decoded(path).frames == 25


def test_silence_that_the_time_stamps_leave_out_is_decoded(tmp_path: Path) -> None:
    """A call that was broken off for half a second: what comes afterwards stays at its time."""
    written, late = clicks(96_000, 48_000), 47 * 1024
    whole = write_sound(tmp_path / "whole.m4a", written, 48_000)
    decoded_audio = decoded(with_gap(whole, tmp_path / "voice.m4a", late, 24_000))
    assert (decoded_audio.frames, decoded_audio.seconds) == (62, 2.5)
    found, before = np.asarray(decoded_audio.samples.values), np.asarray(decoded(whole).samples.values)
    position = late // 3
    assert lag(found[:position], before[:position]) == 0
    assert lag(found[position:], before[position:]) == 8_000


def test_audio_that_begins_late_stays_late(tmp_path: Path) -> None:
    """Behind an empty edit, as of a track that was moved in a cutting room."""
    whole = write_sound(tmp_path / "whole.m4a", clicks(96_000, 48_000), 48_000)
    late = with_gap(whole, tmp_path / "voice.m4a", -1024, 24_000, movie_timescale="48000")
    decoded_audio = decoded(late)
    assert decoded_audio.seconds == pytest.approx(2.5, abs=1024 / 48_000)  # with the encoder's own silence
    assert lag(np.asarray(decoded_audio.samples.values), np.asarray(decoded(whole).samples.values)) == 8_000


def test_samples_in_packets_of_one_are_decoded_together(tmp_path: Path) -> None:
    """Of a MOV: one at a time takes longer than the recording. Half a second is left out between them."""
    written, gap = clicks(32_000, 16_000), 8_000
    whole = write_sound(tmp_path / "whole.mov", written, 16_000)
    path = with_lengths(whole, tmp_path / "voice.mov", (15_999, 1), (1, 1 + gap), (16_000, 1))
    with opened(path) as opened_file:
        assert sum(1 for packet in opened_file.demux(0) if packet.size) == 32_000
    with opened(path) as opened_file:
        assert sum(1 for _ in sounding(opened_file, opened_file.streams.audio[0])) < 40
    decoded_audio = decoded(path)
    assert (decoded_audio.frames, decoded_audio.seconds) == (62, 2.5)
    found, before = (np.asarray(each.samples.values) for each in (decoded_audio, decoded(whole)))
    assert lag(found[:16_000], before[:16_000]) == 0
    assert lag(found[16_000:], before[16_000:]) == gap


def test_the_time_of_a_broadcast_is_no_silence(tmp_path: Path) -> None:
    """A piece of a stream counts from where the stream began, which may be hours before."""
    whole = write_sound(tmp_path / "whole.m4a", clicks(96_000, 48_000), 48_000)
    fragments = {"movflags": "empty_moov+frag_every_frame+default_base_moof"}
    decoded_audio = decoded(with_gap(whole, tmp_path / "voice.m4a", -1024, 48_000 * 3600, **fragments))
    assert decoded_audio.seconds == pytest.approx(2.0, abs=0.05)


def test_a_gap_that_is_longer_than_the_limit_is_found_before_it_is_filled(tmp_path: Path) -> None:
    whole = write_sound(tmp_path / "whole.m4a", tone(96_000, 48_000), 48_000)
    path = with_gap(whole, tmp_path / "voice.m4a", 48_128, 48_000 * 3600)
    assert refusal(path, VideoLimits(audio_most_s=3.0)).startswith("it has more than 3 s")
    assert (tmp_path / "voice.m4a.scratch" / "audio.f32").stat().st_size < 4 * 16_000 * 5


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_no_numbers_are_refused(tmp_path: Path, value: float) -> None:
    sound = tone(16_000, 16_000)
    sound[0, 8_000] = value
    (tmp_path / "floats.wav").write_bytes(wave_of(sound.tobytes(), kind=3, bits=32, wide=4))
    assert refusal(tmp_path / "floats.wav") == "it holds values that are not finite numbers"


@pytest.mark.parametrize("gain", [2e4, 1e12, 1e38])
def test_whole_numbers_that_were_written_as_floats_are_refused(tmp_path: Path, gain: float) -> None:
    """AAC makes noise of some, and ends in an error at more."""
    sound = np.asarray(tone(16_000, 16_000, gain=0.5) * gain, np.float32)
    (tmp_path / "floats.wav").write_bytes(wave_of(sound.tobytes(), kind=3, bits=32, wide=4))
    why = refusal(tmp_path / "floats.wav")
    assert why == f"it holds values of up to {gain / 2:.3g}; floats of sound go from -1 to 1"


def test_audio_a_little_over_full_scale_is_accepted(tmp_path: Path) -> None:
    sound = tone(16_000, 16_000, gain=4.0)
    (tmp_path / "floats.wav").write_bytes(wave_of(sound.tobytes(), kind=3, bits=32, wide=4))
    assert decoded(tmp_path / "floats.wav").frames == 25


def test_a_sample_a_second_is_no_sound(tmp_path: Path) -> None:
    (tmp_path / "slow.wav").write_bytes(wave_of(bytes(4), kind=1, bits=16, wide=2, rate=1))
    assert refusal(tmp_path / "slow.wav") == "there is no sound in it"


@pytest.mark.parametrize("rate", [768_001, 200_000_001, 2**31 - 1])
def test_more_samples_a_second_than_any_microphone_has_are_refused(tmp_path: Path, rate: int) -> None:
    """Before there is a filter for them: of two hundred million a second it takes gigabytes."""
    body = bytes(2 * min(rate // 4, 10**6))
    (tmp_path / "fast.wav").write_bytes(wave_of(body, kind=1, bits=16, wide=2, rate=rate % 2**30))
    assert "samples a second; at most 768000 are allowed" in refusal(tmp_path / "fast.wav")


@pytest.mark.parametrize(
    ("kind", "subtype"),
    [
        *(("WAV", form) for form in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")),
        *(("WAV", form) for form in ("ULAW", "ALAW", "MS_ADPCM", "IMA_ADPCM")),
        *(("WAVEX", form) for form in ("PCM_16", "FLOAT")),
        *(("FLAC", form) for form in ("PCM_S8", "PCM_16", "PCM_24")),
        *(("OGG", form) for form in ("VORBIS", "OPUS")),
        ("MP3", "MPEG_LAYER_III"),
    ],
)
@pytest.mark.parametrize("channels", [1, 2])
def test_all_codings_of_these_formats_are_decoded(
    tmp_path: Path, kind: str, subtype: str, channels: int
) -> None:
    """Whichever library hears it."""
    written = np.repeat(clicks(48_000, 48_000).T, channels, axis=1)
    soundfile.write(tmp_path / "voice", written, 48_000, subtype, format=kind)
    decoded_audio = decoded(tmp_path / "voice")
    assert decoded_audio.seconds == pytest.approx(1.0, abs=0.025)
    wanted = decoded(write_sound(tmp_path / "wanted.wav", clicks(48_000, 48_000), 48_000)).samples.values
    found = np.asarray(decoded_audio.samples.values)[: len(wanted)]
    assert np.corrcoef(found, np.asarray(wanted)[: len(found)])[0, 1] > 0.9


@pytest.mark.parametrize("kind", ["WAV", "WAVEX", "FLAC"])
def test_speech_from_one_of_six_loudspeakers_is_mixed_in(tmp_path: Path, kind: str) -> None:
    written = np.zeros((48_000, 6), np.float32)
    written[:, 2] = clicks(48_000, 48_000)[0]
    soundfile.write(tmp_path / "voice", written, 48_000, "PCM_16", format=kind)
    decoded_audio = decoded(tmp_path / "voice")
    wanted = decoded(write_sound(tmp_path / "wanted.wav", clicks(48_000, 48_000), 48_000))
    np.testing.assert_allclose(decoded_audio.samples.values, wanted.samples.values, atol=0.02)


def test_libsndfile_decodes_wav_and_flac_and_ffmpeg_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries: list[str] = []
    really = soundfile.SoundFile
    monkeypatch.setattr(soundfile, "SoundFile", lambda path: libraries.append(path.name) or really(path))
    for kind in FORMATS:
        assert decoded(write_sound(tmp_path / f"voice.{kind}", tone(48_000, 48_000), 48_000)).frames == 25
    assert libraries == ["voice.wav", "voice.flac"]


def test_a_flac_whose_bytes_have_changed_is_refused(tmp_path: Path) -> None:
    """Its checksums tell; FFmpeg makes noise of it."""
    path = write_sound(tmp_path / "voice.flac", noise(96_000), 48_000)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x55
    path.write_bytes(data)
    assert "not a readable" in refusal(path)


def test_a_flac_without_a_length_is_decoded(tmp_path: Path) -> None:
    path = write_sound(tmp_path / "voice.flac", noise(48_000), 48_000)
    data = bytearray(path.read_bytes())
    data[21] &= 0xF0  # 36 bits of the first block: how many samples there are
    data[22:26] = bytes(4)
    path.write_bytes(data)
    assert decoded(path).frames == 25
    with contextlib.closing(recorded(path)) as opened_file:
        assert opened_file.seconds == 0.0


def test_two_ogg_files_in_one_are_both_decoded(tmp_path: Path) -> None:
    parts = [
        write_sound(tmp_path / f"{n}.ogg", clicks(48_000, 48_000, 0.2 + 0.1 * n), 48_000) for n in range(2)
    ]
    (tmp_path / "both.ogg").write_bytes(b"".join(part.read_bytes() for part in parts))
    assert decoded(tmp_path / "both.ogg").frames == 50


def test_an_ogg_that_lacks_a_page_is_refused(tmp_path: Path) -> None:
    data = write_sound(tmp_path / "whole.ogg", clicks(288_000, 48_000), 48_000).read_bytes()
    starts = [position.start() for position in re.finditer(b"OggS", data)] + [len(data)]
    (tmp_path / "part.ogg").write_bytes(data[: starts[3]] + data[starts[4] :])
    assert "cut off" in refusal(tmp_path / "part.ogg")


def test_early_samples_do_not_depend_on_late_ones(tmp_path: Path) -> None:
    """As long as it changes the loudness by less than is rounded."""
    written = clicks(160_000, 16_000)
    other = written.copy()
    other[:, 150_000:] = clicks(160_000, 16_000, every_s=0.2)[:, 150_000:] * 0.9
    first, second = (
        decoded(write_sound(tmp_path / f"{n}.wav", sound, 16_000)) for n, sound in enumerate((written, other))
    )
    assert np.array_equal(first.samples.values[:140_000], second.samples.values[:140_000])
    assert not np.array_equal(first.samples.values, second.samples.values)


PROGRAM = """
import sys
from pathlib import Path
from stoker.models.talking_video.limits import VideoLimits
from stoker.models.talking_video.audio.normalization import normalized
voice = normalized(Path(sys.argv[1]), Path(sys.argv[2]))
peak = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
print(voice.frames, peak)
"""


@pytest.mark.slow
def test_ten_minutes_take_no_more_memory_than_ten_seconds(tmp_path: Path) -> None:
    short, long = _peak(tmp_path, 10), _peak(tmp_path, 600)
    print(f"peak RSS {short / 1024:.0f} MiB for 10 s, {long / 1024:.0f} MiB for 600 s")
    assert long - short < 16 * 1024


def _peak(folder: Path, seconds: int) -> int:
    """In KiB, of a process that hears so much."""
    part = (noise(8_000) * 32_767).astype("<i2").tobytes()
    head = write_sound(folder / "head.wav", noise(8_000), 8_000).read_bytes()
    start = head.index(b"data") + 4
    path = folder / f"{seconds}.wav"
    path.write_bytes(head[:start] + (len(part) * seconds).to_bytes(4, "little") + part * seconds)
    opened_file = [sys.executable, "-c", PROGRAM, str(path), str(folder)]
    frames, peak = map(
        int, subprocess.run(opened_file, check=True, capture_output=True, text=True).stdout.split()
    )
    assert frames == seconds * 25
    return peak
