#pragma once
// Deterministic simulation: a whole program on one thread, with scheduling and virtual time drawn
// from a seed.
#include <coshard/runtime/language.h>

#include <coshard/runtime/launch/simulate.h>
