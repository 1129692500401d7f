"""How full the parts of an answer are: bytes used of ``reply.max_bytes``, the last part not counted.

    python -m benchmarks.bench_fill [--quick]

Prose in twelve scripts, cut from many starting points into parts of 200 and of 120 bytes, marks included.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from statistics import mean
from typing import Any

from benchmarks.report import result, row
from meshai.delivery.parts import cut

PROSE = {
    "English": (
        "The relay stands on the ridge above the village and hears most of the valley. In winter the snow lies high, "
        "and nobody goes there for weeks. Its panel is mounted steeply, so that the snow slides off. A small battery "
        "carries it through four dark days. When it falls silent, somebody walks up on a Sunday and looks."
    ),
    "German": (
        "Die Relaisstation steht auf dem Höhenrücken oberhalb des "
        "Dorfes und hört fast das ganze Tal. Im Winter liegt "
        "der Schnee hoch, und wochenlang kommt niemand hinauf. Das Solarmodul ist steil befestigt, damit der Schnee "
        "abrutscht. Die Betriebsspannung reicht für vier dunkle Tage. Verstummt sie, geht sonntags jemand nachsehen."
    ),
    "French": (
        "Le relais se trouve sur la crête au-dessus du village et "
        "entend presque toute la vallée. En hiver la neige est "
        "haute, et personne n'y monte pendant des semaines. Son panneau "
        "est très incliné, pour que la neige glisse. Une "
        "petite batterie le fait vivre quatre jours sombres. Quand il se tait, quelqu'un y monte le dimanche."
    ),
    "Russian": (
        "Ретранслятор стоит на гребне над деревней и слышит почти "
        "всю долину. Зимой там лежит глубокий снег, и неделями "
        "туда никто не ходит. Панель закреплена круто, чтобы снег с неё соскальзывал. Небольшой батареи хватает на "
        "четыре тёмных дня. Когда он замолкает, кто-нибудь в воскресенье поднимается посмотреть."
    ),
    "Greek": (
        "Ο αναμεταδότης βρίσκεται στη ράχη πάνω από το χωριό και ακούει σχεδόν όλη την κοιλάδα. Τον χειμώνα το χιόνι "
        "είναι ψηλό και για εβδομάδες δεν ανεβαίνει κανείς. Το πάνελ είναι απότομα στημένο, για να γλιστρά το χιόνι. "
        "Μια μικρή μπαταρία φτάνει για τέσσερις σκοτεινές μέρες."
    ),
    "Arabic": (
        "يقف المرحل على الحافة فوق القرية ويسمع معظم الوادي. في الشتاء "
        "يكون الثلج عاليا ولا يذهب أحد إلى هناك لأسابيع. "
        "لوحه مثبت بشكل مائل كي ينزلق الثلج عنه. بطارية صغيرة تكفيه "
        "أربعة أيام مظلمة. وعندما يصمت يصعد أحدهم يوم الجمعة "
        "لينظر ما الأمر."
    ),
    "Hebrew": (
        "הממסר עומד על הרכס מעל הכפר ושומע את רוב העמק. בחורף השלג "
        "גבוה ואיש אינו עולה לשם במשך שבועות. הלוח שלו מותקן "
        "בשיפוע תלול כדי שהשלג יחליק ממנו. סוללה קטנה מספיקה לארבעה "
        "ימים חשוכים. כשהוא משתתק מישהו עולה לשם בשבת לבדוק."
    ),
    "Hindi": (
        "रिले गाँव के ऊपर की चोटी पर है और लगभग पूरी घाटी को सुनता है। "
        "सर्दियों में बर्फ़ बहुत ऊँची होती है और हफ़्तों तक वहाँ कोई "
        "नहीं जाता। उसका पैनल तिरछा लगा है ताकि बर्फ़ फिसल जाए। एक छोटी "
        "बैटरी चार अँधेरे दिन चलती है। जब वह चुप हो जाता है तो "
        "कोई रविवार को ऊपर जाकर देखता है।"
    ),
    "Thai": (
        "สถานีทวนสัญญาณตั้งอยู่บนสันเขาเหนือหมู่บ้านและได้ยินเกือบทั้งหุบเขา "
        "ในฤดูหนาวหิมะสูงมากและไม่มีใครขึ้นไปหลายสัปดาห์ "
        "แผงโซลาร์ติดตั้งให้ชันเพื่อให้หิมะไหลลง แบตเตอรี่ก้อนเล็กอยู่ได้สี่วันที่มืดครึ้ม "
        "เมื่อมันเงียบไปจะมีคนขึ้นไปดูในวันอาทิตย์"
    ),
    "Chinese": (
        "中继站建在村子上方的山脊上,几乎能听到整个山谷。冬天积雪很深,好几个星期没有人上去。"
        "太阳能板装得很陡,好让雪滑下来。一块小电池"
        "可以撑过四个阴天。如果它没有声音了,星期天就会有人爬上去看看。"
        "夏天那里常有雷雨,所以天线装了避雷器,桅杆也接了地。"
    ),
    "Japanese": (
        "中継局は村の上の尾根にあり、谷のほとんどの電波を受けることができます。"
        "冬は雪が深く、何週間も誰も登りません。雪が滑り落ちるように、"
        "パネルは急な角度で取り付けられています。小さな電池で"
        "曇りの日が四日続いても動きます。止まったときは、日曜日に誰かが見に行きます。"
    ),
    "Korean": (
        "중계기는 마을 위 산등성이에 있으며 골짜기 거의 전체의 신호를 받습니다. "
        "겨울에는 눈이 높이 쌓여 몇 주 동안 아무도 올라가지 않습니다. "
        "눈이 미끄러져 내리도록 패널을 가파르게 달았습니다. 작은 배터리로 어두운 "
        "날 나흘을 버팁니다. 조용해지면 일요일에 누군가 올라가 봅니다."
    ),
}
GOAL = 92.0


def main(argv: Sequence[str] = ()) -> dict[str, Any]:
    """Run, and return rows and numbers."""
    parser = argparse.ArgumentParser(prog="bench_fill")
    parser.add_argument("--quick", action="store_true", help="fewer starting points")
    options, _ = parser.parse_known_args(list(argv))
    step = 40 if options.quick else 3
    filled = {name: {size: _fill(text, size, step) for size in (200, 120)} for name, text in PROSE.items()}
    rows = []
    for size in (200, 120):
        means = {name: mean(sizes[size]) for name, sizes in filled.items()}
        worst = min(means, key=lambda name: means[name])
        rows.append(
            row(
                f"payload filled, parts of {size} bytes, worst of {len(PROSE)} scripts",
                f">= {GOAL:g} %" if size == 200 else "",
                f"{means[worst]:.1f} % ({worst}), all {mean(means.values()):.1f} %",
                means[worst] >= GOAL if size == 200 else None,
            )
        )
    figures = {
        name: {str(size): {"mean": round(mean(values), 1), "min": round(min(values), 1), "parts": len(values)}
               for size, values in sizes.items()}
        for name, sizes in filled.items()
    }  # fmt: skip
    return result(rows, filled_percent=figures)


def _fill(text: str, max_bytes: int, step: int) -> list[float]:
    """Percent of ``max_bytes`` used by every part but the last, over many answers made of this prose."""
    filled: list[float] = []
    for begin in range(0, len(text), step):
        answer = f"{text[begin:]} {text}"
        parts = cut(answer, max_bytes=max_bytes, max_parts=9).parts
        filled += [100 * len(part.encode()) / max_bytes for part in parts[:-1]]
    return filled


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:]), indent=1))
