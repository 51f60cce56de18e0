#pragma once
// The program's own styles, in a file of a name that the library has inside, too.
#define OWN_STYLE 1
