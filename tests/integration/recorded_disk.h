#pragma once
// What a program does to the files below one folder, by its own calls of the C library, which
// recorded_disk.cpp puts itself before. Told by the environment:
//   DISK_FOLDER       the folder
//   DISK_RECORD=F     each call becomes a line of F, in their order
//   DISK_KILL=N       the process kills itself before call N, counted from 1
//   DISK_FAIL=C:N:E   call N of those named C fails with errno E
#include <string_view>

// A line of the record that is no call.
void note_on_disk(std::string_view text);
