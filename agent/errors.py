"""Errors that several folders of the agent raise and catch."""

from __future__ import annotations


class SpawnFailed(Exception):
    """A worker process could not be started; the text is for the operator."""


class OutboxUnusable(Exception):
    """The outbox's file cannot be read; the text says why, and what to do."""


class AgentRefused(Exception):
    """Control refuses this node; the text is control's reason. Trying again would change nothing."""
