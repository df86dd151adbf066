"""A default stands in the schema: what parts start from where nobody configures them is the same."""

from __future__ import annotations

from dataclasses import fields

from agent.config.schema import Config, LoginConfig
from agent.lib.http_target import HttpLogin
from agent.rack.rack_options import RackOptions
from agent.sampler.schedule import Settings
from agent.wiring.command_line import CommandLineOptions
from agent.wiring.logins import LOGIN, login_of
from agent.wiring.reconfiguration import rack_options
from agent.wiring.sources import load_settings


def test_the_sampler_starts_from_the_defaults_of_the_schema() -> None:
    assert load_settings(Config()) == Settings()


def test_the_rack_starts_from_the_defaults_of_the_schema() -> None:
    assert rack_options(Config(), CommandLineOptions()) == RackOptions()


def test_a_login_has_the_keys_of_its_section() -> None:
    assert {field.name for field in fields(HttpLogin)} == {*LOGIN, "pinned"}
    assert HttpLogin(**login_of(LoginConfig())) == HttpLogin()
