from .board import Leaderboard as Leaderboard, build_leaderboard as build_leaderboard
from .pages import write_leaderboard as write_leaderboard
from .standings import Standing as Standing, Standings as Standings, find_standings as find_standings
