#pragma once
// Whole programs on one thread, in an order and a time that follow from a seed.
#include <coshard/runtime/launch/simulate.h>
