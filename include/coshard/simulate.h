#pragma once
// Deterministic simulation: a whole program on one thread, its order and time drawn from a seed.
#include <coshard/runtime/language.h>

#include <coshard/runtime/launch/simulate.h>
